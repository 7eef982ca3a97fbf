// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>

#include "cli/json.h"
#include "cli/target.h"
#include "daemon/control.h"

int verb_metrics(const struct verb *verb, int argc, char **argv)
{
    static const struct option flags[] = {{0}};
    struct target target;
    cJSON *reply = NULL;
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":", flags, NULL)) != -1)
        return complain_option(verb, found, argv);
    if (argc - optind != 1)
        return complain_usage(verb, "one MOUNTPOINT is needed; run: cairn metrics %s", verb->synopsis);
    int code = target_of_mount(verb, argv[optind], &target);
    if (code != CLI_OK)
        return code;
    if (ask_daemon(verb->name, target.store, "metrics", NULL, &reply) < 0) {
        code = CLI_FAILED;
    } else if (json_text(reply, "text")) {
        (void)fputs(json_text(reply, "text"), stdout);
    } else {
        complain(verb->name, "store %s: %s", target.store, daemon_trouble(-EBADMSG));
        code = CLI_FAILED;
    }
    cJSON_Delete(reply);
    target_done(&target);
    return code;
}
