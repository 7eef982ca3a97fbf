// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stdio.h>

#include "../expect.h"
#include "base/base.h"
#include "base/cause.h"
#include "base/crc.h"
#include "base/hex.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

Test(base, numbers)
{
    assert_u64(align_up(0, 4096), 0);
    assert_u64(align_up(1, 4096), 4096);
    assert_u64(align_up(4096, 4096), 4096);
    assert_u64(align_down(8191, 4096), 4096);
    assert_u64(min_u64(1, 2), 1);
    assert_u64(max_u64(1, 2), 2);
}

Test(base, check_ends_the_process, .signal = SIGABRT)
{
    check(1 + 1 == 3);
}

Test(base, crc_is_that_of_zlib)
{
    assert_u64(crc32_of(0, "123456789", 9), 0xcbf43926);
    assert_u64(crc32_of(crc32_of(0, "1234", 4), "56789", 5), 0xcbf43926);
}

Test(base, log_lines_cannot_be_forged)
{
    int fds[2];
    assert_i64(pipe(fds), 0);
    log_set_fd(fds[1]);
    log_set_level(LOG_LEVEL_WARN);
    log_info("not to be seen");
    log_warn("name %s", "a\nb\033[2J");
    char line[256] = {0};
    ssize_t n = read(fds[0], line, sizeof line - 1);
    cr_assert_gt(n, 0);
    cr_assert_not_null(strstr(line, "cairn warning: name a?b?[2J\n"));
    cr_assert_null(strstr(line, "seen"));
}

Test(base, long_log_lines_are_cut)
{
    int fds[2];
    assert_i64(pipe(fds), 0);
    log_set_fd(fds[1]);
    _cleanup_free_ char *text = xcalloc(1, 5000);
    memset(text, 'x', 4999);
    log_error("%s", text);
    char line[8192];
    ssize_t n = read(fds[0], line, sizeof line);
    cr_assert(n > 1000 && n < 1200);
    assert_i64(line[n - 1], '\n');
}

Test(base, control_characters_are_hidden)
{
    char text[] = "a\n\x1b[2J\x7f\xc2\x9b"
                  "b \x9b\xe2\x80\xae\xe2\x81\xa9\xe2\x82\xac\xc3\xa4\xff\xc2";
    text_hide_controls(text);
    assert_str(text, "a??[2J??b ???\xe2\x82\xac\xc3\xa4\xff\xc2");
}

Test(base, utf8)
{
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {{"", 0},
                 {"a", 1},
                 {"\xc3\xa4", 2},
                 {"\xe2\x82\xac", 3},
                 {"\xf0\x9f\x98\x80", 4},
                 {"\x80", 0},
                 {"\xff", 0},
                 {"\xc3", 0},
                 {"\xc3(", 0},
                 {"\xc0\x80", 0},
                 {"\xe0\x9f\xbf", 0},
                 {"\xed\xa0\x80", 0},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xf0\x9f\x98", 0},
                 {"\xf8\x88\x80\x80\x80", 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_u64(text_utf8_len(cases[i].text), cases[i].len, "%zu", i);
}

Test(base, hex)
{
    char text[9] = "--------";
    hex_print(text, "\x00\x9a\xff\x10", 4);
    expect_str(text, "009aff10");
    hex_print(text, NULL, 0);
    expect_str(text, "");
    uint8_t bytes[3];
    cr_expect(hex_read(bytes, "0fA9b0", 3));
    cr_expect(memcmp(bytes, "\x0f\xa9\xb0", 3) == 0);
    cr_expect(!hex_read(bytes, "0fg9b0", 3));
    cr_expect(!hex_read(bytes, "0f", 3));
}

static const char *guess_of(const char *word)
{
    static const char *const names[] = {"mount", "umount", "stage", "stage_dir", "status", "gc"};
    struct text_guess guess = {.word = word};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        text_guess_try(&guess, names[i]);
    return guess.best ? guess.best : "";
}

Test(base, a_mistyped_word_is_guessed)
{
    assert_str(guess_of("moutn"), "mount");
    assert_str(guess_of("unmount"), "umount");
    assert_str(guess_of("stag"), "stage");
    assert_str(guess_of("stage-dri"), "stage_dir");
    assert_str(guess_of("statsu"), "status");
    assert_str(guess_of("gcc"), "gc");
    assert_str(guess_of("encrypt"), "");
    assert_str(guess_of("x"), "");
    assert_str(guess_of(""), "");
    assert_str(guess_of("a word that is much longer than any name of a command"), "");
}

Test(base, a_cause_ends_with_a_whole_word)
{
    char text[20];
    cause_format(text, sizeof text, "%s %d", "short", 1);
    assert_str(text, "short 1");
    cause_format(text, sizeof text, "%s", "one two three four five");
    assert_str(text, "one two three ...");
    cause_format(text, sizeof text, "%s", "0123456789012345678");
    assert_str(text, "0123456789012345678");
    cause_format(text, sizeof text, "%s", "01234567890123456789");
    assert_str(text, "012345678901234 ...");
    cause_note("first");
    cause_note("%s, then second", cause_text());
    assert_str(cause_text(), "first, then second");
}

Test(base, a_list_names_only_some)
{
    static const char *const items[] = {"a", "b", "c", "d", "e", "f", "g"};
    static const char *const texts[] = {"a",
                                        "a, b",
                                        "a, b, c",
                                        "a, b, c, d",
                                        "a, b, c, d, e",
                                        "a, b, c, d, e and 1 more",
                                        "a, b, c, d, e and 2 more"};
    struct text_list list = {0};
    cr_assert_null(text_list_take(&list));
    for (size_t count = 1; count <= ARRAY_LEN(items); count++) {
        for (size_t i = 0; i < count; i++)
            text_list_add(&list, items[i]);
        _cleanup_free_ char *text = text_list_take(&list);
        assert_str(text, texts[count - 1]);
    }
}
