// SPDX-License-Identifier: Apache-2.0
#include "tier/xml.h"

#include <expat.h>

#include "base/vector.h"

#define DEPTH_MAX 16
#define PATH_MAX_LEN 1024
#define VALUE_MAX (64u * 1024)

struct reader {
    XML_Parser parser;
    int (*fn)(const char *path, const char *value, void *arg);
    void *arg;
    char path[PATH_MAX_LEN];
    size_t path_len, ends[DEPTH_MAX]; /* length of the path before each open element */
    unsigned depth;
    VECTOR(char) value; /* at most VALUE_MAX */
    int error;
};

static void stop_reader(struct reader *rd, int error)
{
    if (rd->error == 0)
        rd->error = error;
    (void)XML_StopParser(rd->parser, XML_FALSE);
}

static void on_xml_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *rd = arg;
    (void)attributes;
    const char *colon = strrchr(name, ':');
    name = colon ? colon + 1 : name;
    size_t len = strlen(name);
    if (rd->depth == DEPTH_MAX || rd->path_len + 1 + len >= PATH_MAX_LEN) {
        stop_reader(rd, -EPROTO);
        return;
    }
    rd->ends[rd->depth++] = rd->path_len;
    if (rd->path_len)
        rd->path[rd->path_len++] = '/';
    memcpy(rd->path + rd->path_len, name, len + 1);
    rd->path_len += len;
    rd->value.count = 0;
}

static void on_xml_text(void *arg, const XML_Char *text, int len)
{
    struct reader *rd = arg;
    if ((size_t)len > VALUE_MAX - rd->value.count)
        stop_reader(rd, -EPROTO);
    else
        vector_add_all(&rd->value, text, (size_t)len);
}

static void on_xml_end(void *arg, const XML_Char *name)
{
    struct reader *rd = arg;
    (void)name;
    if (rd->error)
        return;
    check(rd->depth > 0);
    vector_add(&rd->value, '\0');
    int r = rd->fn(rd->path, rd->value.at, rd->arg);
    rd->path_len = rd->ends[--rd->depth];
    rd->path[rd->path_len] = '\0';
    rd->value.count = 0;
    if (r < 0)
        stop_reader(rd, r);
}

/* No S3 server sends a document type, and it could define entities. */
static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                       const XML_Char *public, int internal)
{
    (void)name, (void)system, (void)public, (void)internal;
    stop_reader(arg, -EPROTO);
}

int xml_read(const char *text, size_t len,
             int (*fn)(const char *path, const char *value, void *arg), void *arg)
{
    struct reader rd = {.parser = XML_ParserCreate("UTF-8"), .fn = fn, .arg = arg};
    check(rd.parser); /* out of memory */
    if (len > INT32_MAX)
        rd.error = -EPROTO;
    XML_SetUserData(rd.parser, &rd);
    XML_SetElementHandler(rd.parser, on_xml_start, on_xml_end);
    XML_SetCharacterDataHandler(rd.parser, on_xml_text);
    XML_SetStartDoctypeDeclHandler(rd.parser, on_doctype);
    if (rd.error == 0 && XML_Parse(rd.parser, text, (int)len, XML_TRUE) != XML_STATUS_OK)
        stop_reader(&rd, -EPROTO);
    XML_ParserFree(rd.parser);
    vector_free(&rd.value);
    return rd.error;
}
