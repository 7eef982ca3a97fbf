// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/job.h"

int verb_gc(const struct verb *verb, int argc, char **argv)
{
    static const struct option flags[] = {{"dry-run", no_argument, NULL, 'n'}, {0}};
    bool dry_run = false;
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":n", flags, NULL)) != -1) {
        if (found != 'n')
            return complain_option(verb, found, argv);
        dry_run = true;
    }
    if (argc - optind != 1)
        return complain_usage(verb, "one MOUNTPOINT is needed; run: cairn gc %s", verb->synopsis);
    cJSON *request = cJSON_CreateObject();
    struct job_report report;
    (void)cJSON_AddStringToObject(request, "kind", "gc");
    (void)cJSON_AddBoolToObject(request, "local", true);
    (void)cJSON_AddBoolToObject(request, "remote", true);
    (void)cJSON_AddBoolToObject(request, "dry_run", dry_run);
    int code = job_run(verb, argv[optind], request, &report);
    if (code != CLI_OK)
        return code;
    (void)printf("%llu objects, %s%s\n", (unsigned long long)report.objects, human_bytes(report.removed_bytes).text,
                 dry_run ? " would be deleted" : report.cancelled ? " deleted (cancelled)" : " deleted");
    return report.failed || report.cancelled ? CLI_FAILED : CLI_OK;
}
