// SPDX-License-Identifier: Apache-2.0
/* Names of objects: what is taken for a number is exactly what that number is called. */
#include "format/object.h"
#include "../expect.h"

Test(object, number_of_a_name)
{
    const uint64_t numbers[] = {0, 1, 0xab, 0xfedcba9876543210, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        char name[OBJECT_NAME_LEN];
        uint64_t number = 7;
        object_name("packs", numbers[i], name);
        cr_assert(object_number(name, "packs", &number), "%s", name);
        assert_u64(number, numbers[i]);
        cr_assert_not(object_number(name, "heads", &number));
        cr_assert_not(object_number(name, "pack", &number));
    }
}

Test(object, names_of_others)
{
    static const char *const names[] = {
        "",
        "packs",
        "packs/",
        "packs/1",
        "packs/000000000000000",
        "packs/00000000000000001",
        "packs/000000000000000A",
        "packs/0x0000000000000b",
        "packs/+000000000000001",
        "packs/-000000000000001",
        "packs/ 000000000000001",
        "packs/000000000000001\n",
        "packs//000000000000001",
        "packs/000000000000000g",
        "/packs/0000000000000001",
        "packs/0000000000000001/",
        "packs/0000000000000001.tmp",
        "ppacks/0000000000000001",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        uint64_t number;
        cr_assert_not(object_number(names[i], "packs", &number), "%s", names[i]);
    }
}
