// SPDX-License-Identifier: Apache-2.0
/* TLS: whom we believe. The server is openssl's own. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../expect.h"
#include "bad_tier.h"

static char directory[] = "/var/tmp/cairn-tls-XXXXXX";
static char *certificate, *key, *url;
static pid_t server;

/* The port is free when it is looked for; openssl takes none that is given as 0. */
static unsigned free_port(void)
{
    struct bad_step step = {.raw = NULL};
    unsigned port;
    assert_i64(sscanf(bad_open(&step, 1), "http://127.0.0.1:%u", &port), 1);
    bad_close();
    return port;
}

static void make_certificate(void)
{
    _cleanup_free_ char *command =
        xasprintf("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
                  "subjectAltName=DNS:localhost "
                  "-keyout %s -out %s 2>/dev/null",
                  key, certificate);
    assert_i64(system(command), 0);
}

static void start(const char *option)
{
    _cleanup_free_ char *port = xasprintf("127.0.0.1:%u", free_port());
    url = xasprintf("https://localhost:%s", strchr(port, ':') + 1);
    server = fork();
    cr_assert_geq(server, 0);
    if (server == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)!freopen("/dev/null", "w", stdout);
        (void)!freopen("/dev/null", "w", stderr);
        (void)execlp("openssl", "openssl", "s_server", "-accept", port, "-cert", certificate,
                     "-key", key, "-www", option, (char *)NULL);
        _exit(127);
    }
}

static void begin(void)
{
    bad_begin();
    if (system("command -v openssl >/dev/null") != 0)
        return;
    cr_assert_not_null(mkdtemp(directory));
    certificate = xasprintf("%s/certificate", directory);
    key = xasprintf("%s/key", directory);
    make_certificate();
}

static void end(void)
{
    bad_end();
    if (server > 0) {
        (void)kill(server, SIGKILL);
        (void)waitpid(server, NULL, 0);
    }
    if (!certificate)
        return;
    (void)unlink(certificate);
    (void)unlink(key);
    (void)rmdir(directory);
    free(certificate);
    free(key);
    free(url);
}

TestSuite(s3_tls, .init = begin, .fini = end, .timeout = 600);

#define NEEDS_OPENSSL()                                                                            \
    do {                                                                                           \
        if (!certificate)                                                                          \
            cr_skip_test("openssl is not here");                                                   \
    } while (0)

Test(s3_tls, an_unknown_certificate)
{
    NEEDS_OPENSSL();
    start("-quiet");
    bad_tier(url);
    assert_i64(try_put(), -EKEYREJECTED);
    expect_reported("set AWS_CA_BUNDLE");
}

/* It answers with a web page of its own. */
Test(s3_tls, a_certificate_that_is_given)
{
    NEEDS_OPENSSL();
    start("-quiet");
    bad_options.ca_bundle = certificate;
    bad_tier(url);
    assert_i64(try_get(), -EUCLEAN);
    expect_reported("the server ignores ranges");
}

Test(s3_tls, a_certificate_for_another_name)
{
    NEEDS_OPENSSL();
    start("-quiet");
    bad_options.ca_bundle = certificate;
    _cleanup_free_ char *by_address = xasprintf("https://127.0.0.1:%s", strrchr(url, ':') + 1);
    bad_tier(by_address);
    assert_i64(try_get(), -EKEYREJECTED);
}

Test(s3_tls, an_old_protocol)
{
    NEEDS_OPENSSL();
    start("-tls1_1");
    bad_options.ca_bundle = certificate;
    bad_tier(url);
    assert_i64(try_get(), -EPROTO);
}
