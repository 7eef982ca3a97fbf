// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/job.h"
#include "daemon/control.h"
#include "daemon/options.h"

static int parse_rate(const struct verb *verb, const char *text, uint64_t *ret)
{
    char *number = xstrdup(text);
    size_t len = strlen(number);
    if (len > 2 && strcmp(number + len - 2, "/s") == 0)
        number[len - 2] = '\0';
    int r = parse_size(number, ret);
    free(number);
    if (r < 0 || *ret == 0)
        return complain_usage(verb, "--rate '%s' is no rate; give bytes in a second, such as 100M", text);
    return 0;
}

static int print_result(const struct job_report *r)
{
    (void)printf("%llu packs, %llu chunks, %s read: ", (unsigned long long)r->packs, (unsigned long long)r->chunks,
                 human_bytes(r->bytes).text);
    if (r->found == 0 && !r->cancelled && !r->failed)
        (void)printf("clean\n");
    else
        (void)printf("%llu damaged or missing, %llu healed, %llu not healed%s\n", (unsigned long long)r->found,
                     (unsigned long long)r->healed, (unsigned long long)r->unhealed, r->cancelled ? " (cancelled)" : "");
    return r->unhealed || r->cancelled || r->failed ? CLI_FAILED : CLI_OK;
}

int verb_scrub(const struct verb *verb, int argc, char **argv)
{
    static const struct option flags[] = {{"rate", required_argument, NULL, 'r'},
                                          {"remote", no_argument, NULL, 'R'},
                                          {"local", no_argument, NULL, 'L'},
                                          {0}};
    uint64_t rate = 0;
    bool remote = false, local = false;
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":r:", flags, NULL)) != -1) {
        if (found != 'r' && found != 'R' && found != 'L')
            return complain_option(verb, found, argv);
        remote = remote || found == 'R';
        local = local || found == 'L';
        if (found == 'r' && parse_rate(verb, optarg, &rate) != 0)
            return CLI_USAGE;
    }
    if (argc - optind != 1)
        return complain_usage(verb, "one MOUNTPOINT is needed; run: cairn scrub %s", verb->synopsis);
    cJSON *request = cJSON_CreateObject();
    struct job_report report;
    (void)cJSON_AddStringToObject(request, "kind", "scrub");
    (void)cJSON_AddBoolToObject(request, "local", local || !remote);
    (void)cJSON_AddBoolToObject(request, "remote", remote || !local);
    control_add_u64(request, "rate", rate);
    int code = job_run(verb, argv[optind], request, &report);
    return code == CLI_OK ? print_result(&report) : code;
}
