// SPDX-License-Identifier: Apache-2.0
/* Saves two arrays while the next step is computed: cc save.c $(pkg-config --cflags --libs cairn),
 * ./a.out DIRECTORY [STEPS]
 *
 * One file a step, as torch.save lays it out (zip), and "latest", which names the newest that is
 * there. */
#include <cairn/cairn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (1u << 20)

static float weights[COUNT], moments[COUNT];

static void compute_gradients(void)
{
    /* forward and backward read the weights: the save may still read them, too */
}

static void update(int step)
{
    for (unsigned i = 0; i < COUNT; i++) {
        moments[i] = (float)step;
        weights[i] += moments[i];
    }
}

static int save_step(cairn_lane *lane, const char *directory, int step)
{
    char path[4096], latest[4096], name[32];
    struct cairn_zip_record records[] = {
        {.name = "step",
         .source = {.length = sizeof step,
                    .host = &step,
                    .flags = CAIRN_SOURCE_NOW}}, /* a local variable */
        {.name = "weights", .source = {.length = sizeof weights, .host = weights}},
        {.name = "moments", .source = {.length = sizeof moments, .host = moments}},
    };
    cairn_save *save, *marker;
    snprintf(name, sizeof name, "step%d.zip", step);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(latest, sizeof latest, "%s/latest", directory);
    int r = cairn_save_zip(lane, path, records, 3, NULL, NULL, &save);
    if (r < 0)
        return r;
    cairn_save *after[] = {save};
    struct cairn_save_options options = {.size = sizeof options, .after = after, .after_count = 1};
    r = cairn_save_marker(lane, latest, name, strlen(name), &options, &marker);
    cairn_save_free(marker);
    cairn_save_free(save); /* it goes on by itself */
    return r;
}

int main(int argc, char **argv)
{
    int steps = argc > 2 ? atoi(argv[2]) : 3;
    cairn_lane *lane;
    if (argc < 2) {
        fprintf(stderr, "usage: %s DIRECTORY [STEPS]\n", argv[0]);
        return 2;
    }
    int r = cairn_lane_open(NULL, &lane);
    if (r < 0) {
        fprintf(stderr, "%s\n", cairn_error());
        return 1;
    }
    for (int step = 1; step <= steps && r == 0; step++) {
        compute_gradients();
        r = cairn_lane_fence(lane, NULL, 0,
                             -1); /* before the update: the last save has what it needs */
        if (r < 0)
            break;
        update(step);
        r = save_step(lane, argv[1], step);
    }
    if (r < 0)
        fprintf(stderr, "%s\n", cairn_error());
    int closed = cairn_lane_close(lane); /* waits until every file has its name */
    if (closed < 0)
        fprintf(stderr, "%s\n", cairn_error());
    return r < 0 || closed < 0;
}
