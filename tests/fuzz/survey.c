// SPDX-License-Identifier: Apache-2.0
/* Portions of a survey, as a daemon that is none answers them to `cairn du`. The first byte is how
 * much was asked for. */
#include "cli/survey.c"

#include "fuzz.h"

static void look_at(const struct walk *w)
{
    const struct survey_sum *sum = &w->sum;
    check(sum->chunks <= sum->uses);
    for (size_t i = 0; i < w->todo.count; i++)
        check(memchr(w->todo.at[i].text, '\0', sizeof w->todo.at[i].text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct walk w = {.drawn_at = INT64_MAX};
    size_t asked = input_u8(&in) % 8 + 1;
    char *text = text_copy(in.at, in.left);
    cJSON *reply = cJSON_Parse(text);
    for (size_t i = 0; i < asked; i++)
        push_ino(&w, 'd', i);
    /* The next portions meet what the first left behind, and the linked files that it named. */
    for (unsigned i = 0; reply && i < 3; i++) {
        size_t now = w.todo.count < asked ? w.todo.count : asked;
        if (!take_portion(&w, reply, now))
            break;
        look_at(&w);
        if (w.todo.count == 0 && !begin_next_phase(&w))
            break;
    }
    settle_walk(&w);
    cJSON_Delete(reply);
    free(text);
    return 0;
}
