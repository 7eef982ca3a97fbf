// SPDX-License-Identifier: Apache-2.0
/* What tests tell the stand-in, and what it notes for them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define CALLS_MAX 64

static struct {
    pthread_mutex_t lock;
    struct {
        const char *name;
        unsigned count;
    } calls[CALLS_MAX];
    unsigned total;
    char violation[200], told[200];
    char fail_call[64];
    unsigned fail_nth;
    CUresult fail_code;
    char hold_call[64];
    unsigned held; /* threads */
    pthread_cond_t held_changed;
    uint64_t seed;
    unsigned delay_us;
    double rate;
} knobs = {.lock = PTHREAD_MUTEX_INITIALIZER, .held_changed = PTHREAD_COND_INITIALIZER};

void violation(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&knobs.lock);
    if (!knobs.violation[0])
        (void)vsnprintf(knobs.violation, sizeof knobs.violation, format, arguments);
    pthread_mutex_unlock(&knobs.lock);
    va_end(arguments);
}

const char *standin_violation(void)
{
    HOLD(&knobs.lock);
    memcpy(knobs.told, knobs.violation, sizeof knobs.told);
    knobs.violation[0] = '\0';
    return knobs.told;
}

void standin_pace(uint64_t seed, unsigned delay_us, double rate)
{
    HOLD(&knobs.lock);
    knobs.seed = seed;
    knobs.delay_us = delay_us;
    knobs.rate = rate;
}

unsigned delay_max_us(void)
{
    HOLD(&knobs.lock);
    return knobs.delay_us;
}

double pace_rate(void)
{
    HOLD(&knobs.lock);
    return knobs.rate;
}

uint64_t pace_seed(void)
{
    HOLD(&knobs.lock);
    return knobs.seed;
}

void standin_fail(const char *call, unsigned nth, CUresult code)
{
    HOLD(&knobs.lock);
    (void)snprintf(knobs.fail_call, sizeof knobs.fail_call, "%s", call ? call : "");
    knobs.fail_nth = call ? nth : 0;
    knobs.fail_code = code;
}

void standin_hold(const char *call)
{
    HOLD(&knobs.lock);
    (void)snprintf(knobs.hold_call, sizeof knobs.hold_call, "%s", call ? call : "");
    pthread_cond_broadcast(&knobs.held_changed);
}

void standin_wait_held(void)
{
    HOLD(&knobs.lock);
    while (knobs.held == 0)
        pthread_cond_wait(&knobs.held_changed, &knobs.lock);
}

static void wait_while_held(const char *call)
{
    HOLD(&knobs.lock);
    while (strcmp(knobs.hold_call, call) == 0) {
        knobs.held++;
        pthread_cond_broadcast(&knobs.held_changed);
        pthread_cond_wait(&knobs.held_changed, &knobs.lock);
        knobs.held--;
    }
}

/* $STANDIN_FAIL="CALL:NTH:CODE", $STANDIN_SEED, $STANDIN_DELAY_US, $STANDIN_RATE: for programs that
 * do not know that this is none. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *fail = getenv("STANDIN_FAIL"), *seed = getenv("STANDIN_SEED"),
               *delay = getenv("STANDIN_DELAY_US"), *rate = getenv("STANDIN_RATE");
    char call[64];
    unsigned nth;
    int code;
    if (fail && sscanf(fail, "%63[^:]:%u:%d", call, &nth, &code) == 3)
        standin_fail(call, nth, code);
    standin_pace(seed ? strtoull(seed, NULL, 0) : 0, delay ? (unsigned)atoi(delay) : 0,
                 rate ? atof(rate) : 0);
}

CUresult injected(const char *call)
{
    HOLD(&knobs.lock);
    return knobs.fail_nth > 0 && strcmp(knobs.fail_call, call) == 0 && --knobs.fail_nth == 0
               ? knobs.fail_code
               : DRIVER_SUCCESS;
}

static void count(const char *call)
{
    HOLD(&knobs.lock);
    unsigned i = 0;
    while (i < CALLS_MAX - 1 && knobs.calls[i].name && strcmp(knobs.calls[i].name, call) != 0)
        i++;
    knobs.calls[i].name = call;
    knobs.calls[i].count++;
    knobs.total++;
}

unsigned standin_calls(const char *call)
{
    HOLD(&knobs.lock);
    unsigned found = call ? 0 : knobs.total;
    for (unsigned i = 0; call && i < CALLS_MAX && knobs.calls[i].name; i++)
        found += strcmp(knobs.calls[i].name, call) == 0 ? knobs.calls[i].count : 0;
    return found;
}

CUresult call_begins(const char *call)
{
    count(call);
    wait_while_held(call);
    return injected(call);
}
