// SPDX-License-Identifier: Apache-2.0
#include "tier/s3/profiles.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <pwd.h>

#include "base/vector.h"
#include "tier/s3/secret.h"

#define FILE_MAX (1 * MIB)
#define ENTRIES_MAX 20000
#define PASSWD_MAX (16 * KIB)

/* The origin of a value; the highest rank takes precedence. */
enum rank {
    RANK_SERVICES,        /* [services NAME] of config */
    RANK_CONFIG,          /* [default] of config */
    RANK_CONFIG_PREFIXED, /* [profile NAME] of config, which may be "default" too */
    RANK_CREDENTIALS,     /* [NAME] of credentials */
    RANK_IGNORED,         /* a section that we do not use */
};

/* All point into the text of the file. */
struct entry {
    enum rank rank;
    const char *section;
    const char *parent; /* "", or the parent key of a nested one */
    const char *key;    /* "" for the section itself */
    const char *value;
};

struct file {
    char *path, *text;
    size_t len;
};

struct s3_profiles {
    struct file config, credentials;
    char *where;
    VECTOR(struct entry) entries;
};

/* A file during parsing. */
struct reader {
    struct s3_profiles *profiles;
    const struct file *file;
    bool is_credentials;
    unsigned line;
    bool in_section, in_key;
    size_t indent; /* of the last key at the top level */
    enum rank rank;
    const char *section;
    const char *parent; /* last key without a value: more indented lines belong to it */
};

static int bad_line(const struct reader *r, char **ret_error, const char *what)
{
    *ret_error = xasprintf("%s:%u: %s", r->file->path, r->line, what);
    return -EINVAL;
}

static int add_entry(struct reader *r, const char *parent, const char *key, const char *value,
                     char **ret_error)
{
    struct s3_profiles *p = r->profiles;
    if (r->rank == RANK_IGNORED)
        return 0;
    if (p->entries.count == ENTRIES_MAX)
        return bad_line(r, ret_error, "too many lines");
    vector_add(&p->entries, (struct entry){r->rank, r->section, parent, key, value});
    return 0;
}

/* Removes white space at both ends. */
static char *trim_blanks(char *text)
{
    text += strspn(text, " \t");
    size_t len = strlen(text);
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        text[--len] = '\0';
    return text;
}

/* Removes a comment, which begins with '#' or ';' after white space. */
static void drop_remark(char *text)
{
    for (char *c = text; *c; c++)
        if ((*c == '#' || *c == ';') && (c == text || c[-1] == ' ' || c[-1] == '\t')) {
            *c = '\0';
            return;
        }
}

/* Returns the rest of the name after "profile " or "services "; NULL if it does not begin with the
 * word. */
static char *after_word(char *name, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(name, word, len) != 0 || (name[len] != ' ' && name[len] != '\t'))
        return NULL;
    return trim_blanks(name + len);
}

static char *unquote_name(char *name)
{
    size_t len = strlen(name);
    if (len < 2 || (*name != '"' && *name != '\'') || name[len - 1] != *name)
        return name;
    name[len - 1] = '\0';
    return name + 1;
}

static enum rank config_rank(char **name)
{
    char *rest;
    if ((rest = after_word(*name, "profile"))) {
        *name = unquote_name(rest);
        return RANK_CONFIG_PREFIXED;
    }
    if ((rest = after_word(*name, "services"))) {
        *name = unquote_name(rest);
        return RANK_SERVICES;
    }
    return strcmp(*name, "default") == 0 ? RANK_CONFIG : RANK_IGNORED;
}

static int read_section(struct reader *r, char *text, char **ret_error)
{
    char *end = strchr(text, ']');
    if (!end)
        return bad_line(r, ret_error, "a section without ']' at its end");
    *end = '\0';
    drop_remark(end + 1);
    if (*trim_blanks(end + 1) != '\0')
        return bad_line(r, ret_error, "something follows the ']' of a section");
    char *name = trim_blanks(text + 1);
    r->rank = r->is_credentials ? RANK_CREDENTIALS : config_rank(&name);
    if (*name == '\0')
        return bad_line(r, ret_error, "a section without a name");
    r->section = name;
    r->in_section = true;
    r->in_key = false;
    r->parent = NULL;
    return add_entry(r, "", "", "", ret_error);
}

static int read_profile_key(struct reader *r, char *text, const char *parent, char **ret_error)
{
    char *equals = strchr(text, '=');
    if (!r->in_section)
        return bad_line(r, ret_error, "a setting before the first [section]");
    if (!equals)
        return bad_line(r, ret_error, "neither a [section] nor a setting with '='");
    *equals = '\0';
    char *key = trim_blanks(text), *value = equals + 1;
    if (*key == '\0')
        return bad_line(r, ret_error, "a setting without a name");
    for (char *c = key; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    /* in a shell command '#' may have a meaning */
    if (strcmp(key, "credential_process") != 0)
        drop_remark(value);
    value = trim_blanks(value);
    if (!parent) {
        r->in_key = true;
        r->parent = *value ? NULL : key;
    }
    return add_entry(r, parent ? parent : "", key, value, ret_error);
}

/* A line indented more than the key above is nested under that key, if the key has no value.
 * Otherwise it continues the value, which none of the settings we use allows. */
static int read_line(struct reader *r, char *line, char **ret_error)
{
    size_t indent = strspn(line, " \t");
    char *text = trim_blanks(line);
    if (*text == '\0' || *text == '#' || *text == ';')
        return 0;
    if (*text == '[')
        return read_section(r, text, ret_error);
    if (r->in_key && indent > r->indent)
        return r->parent ? read_profile_key(r, text, r->parent, ret_error) : 0;
    r->indent = indent;
    return read_profile_key(r, text, NULL, ret_error);
}

static int read_lines(struct reader *r, char *text, char **ret_error)
{
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    int error = 0;
    char *line;
    while (error == 0 && (line = strsep(&text, "\n"))) {
        r->line++;
        size_t len = strlen(line);
        if (len > 0 && line[len - 1] == '\r')
            line[len - 1] = '\0';
        error = read_line(r, line, ret_error);
    }
    return error;
}

static int read_file(struct s3_profiles *profiles, struct file *file, char **ret_error)
{
    int r = s3_secret_read(file->path, FILE_MAX, &file->text, &file->len);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    if (r < 0) {
        *ret_error = xasprintf("%s: cannot be read: %s", file->path, strerror(-r));
        return -EINVAL;
    }
    struct reader reader = {
        .profiles = profiles, .file = file, .is_credentials = file == &profiles->credentials};
    if (strlen(file->text) != file->len) {
        for (const char *c = file->text; *c; c++)
            reader.line += *c == '\n';
        reader.line++;
        return bad_line(&reader, ret_error, "holds a zero byte; not a text file");
    }
    return read_lines(&reader, file->text, ret_error);
}

/* A service started by systemd may have no HOME. Returns NULL if the user is unknown. Caller
 * frees. */
static char *home_directory(void)
{
    const char *home = getenv("HOME");
    if (home && *home)
        return xstrdup(home);
    _cleanup_free_ char *text = xmalloc(PASSWD_MAX);
    struct passwd user, *found = NULL;
    if (getpwuid_r(geteuid(), &user, text, PASSWD_MAX, &found) != 0 || !found || !user.pw_dir)
        return NULL;
    return xstrdup(user.pw_dir);
}

static char *path_of_profiles(const char *variable, const char *name)
{
    const char *chosen = getenv(variable);
    if (chosen && *chosen && strncmp(chosen, "~/", 2) != 0)
        return xstrdup(chosen);
    _cleanup_free_ char *home = home_directory();
    return xasprintf("%s/%s", home ? home : "", chosen && *chosen ? chosen + 2 : name);
}

int s3_profiles_read(struct s3_profiles **ret_profiles, char **ret_error)
{
    struct s3_profiles *p = xcalloc(1, sizeof *p);
    p->config.path = path_of_profiles("AWS_CONFIG_FILE", ".aws/config");
    p->credentials.path = path_of_profiles("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    p->where = xasprintf("%s or %s", p->config.path, p->credentials.path);
    int r = read_file(p, &p->config, ret_error);
    if (r == 0)
        r = read_file(p, &p->credentials, ret_error);
    if (r < 0)
        s3_profiles_free(p);
    else
        *ret_profiles = p;
    return r;
}

static void drop_file(struct file *file)
{
    if (file->text)
        OPENSSL_cleanse(file->text, file->len);
    free(file->text);
    free(file->path);
}

void s3_profiles_free(struct s3_profiles *profiles)
{
    if (!profiles)
        return;
    drop_file(&profiles->config);
    drop_file(&profiles->credentials);
    free(profiles->where);
    vector_free(&profiles->entries);
    free(profiles);
}

const char *s3_profiles_default_name(void)
{
    const char *name = getenv("AWS_PROFILE");
    return name && *name ? name : "default";
}

static bool profile_entry_has_key(const struct entry *e, const char *key)
{
    size_t len = strlen(e->parent);
    if (len == 0)
        return strcmp(e->key, key) == 0;
    return strncmp(key, e->parent, len) == 0 && key[len] == '.' &&
           strcmp(e->key, key + len + 1) == 0;
}

/* Finds the entry of a key with the highest rank between `from` and the upper limit. */
static const struct entry *find_profile_entry(const struct s3_profiles *profiles, enum rank from,
                                              enum rank to, const char *section, const char *key)
{
    const struct entry *best = NULL;
    for (size_t i = 0; i < profiles->entries.count; i++) {
        const struct entry *e = &profiles->entries.at[i];
        if (e->rank >= from && e->rank <= to && (!best || e->rank >= best->rank) &&
            strcmp(e->section, section) == 0 && profile_entry_has_key(e, key))
            best = e;
    }
    return best;
}

bool s3_profiles_has(const struct s3_profiles *profiles, const char *profile)
{
    return find_profile_entry(profiles, RANK_CONFIG, RANK_CREDENTIALS, profile, "") != NULL;
}

const char *s3_profiles_get(const struct s3_profiles *profiles, const char *profile,
                            const char *key)
{
    enum rank from = RANK_CONFIG, to = RANK_CREDENTIALS;
    if (strcmp(key, "aws_secret_access_key") == 0 || strcmp(key, "aws_session_token") == 0) {
        const struct entry *id =
            find_profile_entry(profiles, from, to, profile, "aws_access_key_id");
        from = id ? id->rank : from;
        to = id ? id->rank : to;
    }
    const struct entry *e = find_profile_entry(profiles, from, to, profile, key);
    return e && *e->value ? e->value : NULL;
}

const char *s3_profiles_get_service(const struct s3_profiles *profiles, const char *services,
                                    const char *key)
{
    const struct entry *e =
        find_profile_entry(profiles, RANK_SERVICES, RANK_SERVICES, services, key);
    return e && *e->value ? e->value : NULL;
}

const char *s3_profiles_where(const struct s3_profiles *profiles)
{
    return profiles->where;
}
