// SPDX-License-Identifier: Apache-2.0
#include "codec/tensors.h"

#include "../expect.h"
#include "format/le.h"

struct list {
    struct tensor *at;
    size_t count, header_len;
};

static struct list list_of(const char *text)
{
    struct list list;
    list.header_len = 8 + strlen(text);
    _cleanup_free_ uint8_t *header = xmalloc(list.header_len);
    put_le64(header, strlen(text));
    memcpy(header + 8, text, strlen(text));
    tensors_list(header, list.header_len, &list.at, &list.count);
    return list;
}

/* What a tensor that is called so has for a name. */
static uint64_t name_of(const char *name)
{
    _cleanup_free_ char *text = xasprintf("{\"%s\":{\"data_offsets\":[0,8]}}", name);
    struct list list = list_of(text);
    assert_u64(list.count, 1);
    uint64_t hash = list.at[0].name;
    free(list.at);
    return hash;
}

Test(tensors, are_listed_by_place_with_their_names)
{
    struct list list = list_of(
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[100,108]},"
        " \"a.weight\" : { \"dtype\" : \"F32\", \"shape\":[], \"data_offsets\" : [ 0 , 100 ] } }");
    assert_u64(list.count, 2);
    expect_u64(list.at[0].start, list.header_len);
    expect_u64(list.at[0].end, list.header_len + 100);
    expect_u64(list.at[0].name, name_of("a.weight"));
    expect_u64(list.at[1].start, list.header_len + 100);
    expect_u64(list.at[1].end, list.header_len + 108);
    expect_u64(list.at[1].name, name_of("b.weight"));
    cr_expect(list.at[0].name != list.at[1].name && list.at[0].name != 0);
    free(list.at);
}

Test(tensors, names_may_have_quotes_and_braces_in_them)
{
    cr_expect(name_of("a\\\"b") != name_of("b"));
    cr_expect(name_of("a{") != name_of("b{"));
    cr_expect(name_of("data_offsets") != 0);
}

/* A name, or none, but no crash, and none of another tensor. */
Test(tensors, what_is_no_object_of_a_name_has_none)
{
    static const char *const texts[] = {
        "\"data_offsets\":[0,8]",       "{\"data_offsets\":[0,8]",
        ":{\"data_offsets\":[0,8]",     "\":{\"data_offsets\":[0,8]",
        "a\":{\"data_offsets\":[0,8]",  "{\"a\" {\"data_offsets\":[0,8]",
        "{a:{\"data_offsets\":[0,8]}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct list list = list_of(texts[i]);
        expect_u64(list.count, 1, "%s", texts[i]);
        expect_u64(list.at[0].name, 0, "%s", texts[i]);
        free(list.at);
    }
    struct list list = list_of("{\"a\":{\"data_offsets\":[0,8]},\"data_offsets\":[8,16]}");
    expect_u64(list.count, 2);
    expect_u64(list.at[1].name, 0);
    free(list.at);
}
