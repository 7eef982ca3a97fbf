// SPDX-License-Identifier: Apache-2.0
#include "commit/node_clock.h"

#include "base/clock.h"
#include "base/lock.h"

#define GAP_NS SECOND_NS
/* apparent jumps of the wall clock up to this are ignored, on a busy machine */
#define STEP_NS (50 * MS_NS)
#define DRIFT_PPM 100 /* of an uncorrected oscillator, with a margin */
#define SLEW_PPM 10000
#define SAMPLE_NS MS_NS /* a sample that took longer is repeated */
#define SAMPLES_MAX 5
#define READ_AGAIN_NS (30 * SECOND_NS)
#define NARROW_NS (90 * MS_NS) /* while the error is larger, readings are frequent */
#define TURNS_MAX 12u          /* limit of such readings, for a medium with a slow connection */
#define WHOLE_SECONDS (9 * SECOND_NS / 10)

/* The time minus CLOCK_BOOTTIME is between `least` and `most`. */
struct bounds {
    int64_t least, most;
};

struct node_clock {
    struct node_clock_options options;
    struct cairn_mutex lock; /* a leaf; guards: */
    bool is_watched;
    struct clock_sample last; /* when somebody last looked */
    uint64_t era;
    int64_t era_began;

    bool needs_medium, has_medium;
    struct bounds medium;        /* at the time of: */
    struct clock_sample read_at; /* the last reading */
    int64_t took;                /* half the duration of that reading */
    bool has_whole_seconds;      /* the medium's time has a resolution of whole seconds */
    int64_t vouched;             /* negative: nobody vouches */
    unsigned turns;              /* readings in this era made to narrow the error */
    bool was_bound;              /* at the last look with an offset */
    bool has_offset, has_guess;  /* offset: of this era; guess: ever */
    int64_t offset;              /* the node's time minus CLOCK_BOOTTIME */
    struct node_clock_status status;
};

struct node_clock *node_clock_new(const struct node_clock_options *options)
{
    struct node_clock *clock = xcalloc(1, sizeof *clock);
    check(options->error_least >= 0 && options->error_least <= options->error_most);
    mutex_init(&clock->lock, LOCK_LEAF);
    clock->options = *options;
    clock->needs_medium = options->needs_medium;
    clock->vouched = -1;
    return clock;
}

void node_clock_free(struct node_clock *clock)
{
    if (!clock)
        return;
    mutex_done(&clock->lock);
    free(clock);
}

/* --- eras ------------------------------------------------------------------------------------- */

static int64_t wall_offset(const struct clock_sample *sample)
{
    return sample->wall - sample->boottime;
}

static int64_t size_of(int64_t ns)
{
    return ns < 0 ? -ns : ns;
}

static void begin_era_locked(struct node_clock *clock, const struct clock_sample *sample)
{
    check_held(&clock->lock);
    clock->era++;
    clock->era_began = sample->boottime;
    clock->has_medium = clock->has_offset = false;
    clock->vouched = -1;
    clock->turns = 0;
}

static void notice_end_of_era_locked(struct node_clock *clock, const struct clock_sample *sample)
{
    check_held(&clock->lock);
    int64_t gap = sample->boottime - clock->last.boottime;
    int64_t step = wall_offset(sample) - wall_offset(&clock->last);
    if (!clock->last.boottime)
        return;
    if (size_of(step) > STEP_NS) {
        clock->status.steps++;
        clock->status.step = step;
        begin_era_locked(clock, sample);
    } else if (clock->is_watched && gap > GAP_NS) {
        clock->status.pauses++;
        clock->status.pause = gap;
        begin_era_locked(clock, sample);
    }
}

/* --- bounds ----------------------------------------------------------------------------------- */

/* A time daemon that corrects the clock slews CLOCK_BOOTTIME, by up to a tenth. */
static int64_t drift_since(const struct clock_sample *then, const struct clock_sample *now)
{
    int64_t age = now->boottime - then->boottime;
    int64_t slewed = age - (now->raw - then->raw);
    return size_of(age) * DRIFT_PPM / 1000000 + size_of(slewed);
}

static struct bounds medium_now(const struct node_clock *clock, const struct clock_sample *sample)
{
    int64_t drift = drift_since(&clock->read_at, sample);
    return (struct bounds){clock->medium.least - drift, clock->medium.most + drift};
}

/* Returns false if they do not overlap. */
static bool intersect(struct bounds *bounds, const struct bounds *other)
{
    struct bounds both = {bounds->least > other->least ? bounds->least : other->least,
                          bounds->most < other->most ? bounds->most : other->most};
    if (both.least > both.most)
        return false;
    *bounds = both;
    return true;
}

/* If the wall clock contradicts the medium, it is ignored. */
static enum clock_state find_bounds_locked(struct node_clock *clock,
                                           const struct clock_sample *sample, struct bounds *ret)
{
    check_held(&clock->lock);
    int64_t wall = wall_offset(sample);
    struct bounds own = {wall - clock->vouched, wall + clock->vouched};
    clock->status.contradicts = 0;
    if (!clock->has_medium && clock->needs_medium)
        return CLOCK_UNREAD;
    if (!clock->has_medium && clock->vouched < 0)
        return CLOCK_UNKNOWN;
    if (!clock->has_medium) {
        *ret = own;
        return CLOCK_BOUND;
    }
    *ret = medium_now(clock, sample);
    if (clock->vouched >= 0 && !intersect(ret, &own))
        clock->status.contradicts =
            own.most < ret->least ? ret->least - own.most : ret->most - own.least;
    return CLOCK_BOUND;
}

static int64_t middle(const struct bounds *bounds)
{
    return bounds->least + (bounds->most - bounds->least) / 2;
}

static int64_t error_at(int64_t offset, const struct bounds *bounds)
{
    int64_t below = offset - bounds->least, above = bounds->most - offset;
    return below > above ? below : above;
}

/* Slews the offset towards the middle, so slowly that the time never stands still. */
static void slew_locked(struct node_clock *clock, const struct clock_sample *sample,
                        const struct bounds *bounds)
{
    check_held(&clock->lock);
    int64_t since = sample->boottime - clock->last.boottime;
    int64_t most = since > 0 ? since * SLEW_PPM / 1000000 : 0;
    int64_t wanted = middle(bounds) - clock->offset;
    clock->offset += size_of(wanted) <= most ? wanted : wanted < 0 ? -most : most;
}

static void set_offset_locked(struct node_clock *clock, const struct clock_sample *sample,
                              const struct bounds *bounds)
{
    check_held(&clock->lock);
    int64_t most = clock->options.error_most;
    if (clock->has_offset && clock->was_bound && error_at(clock->offset, bounds) > most &&
        error_at(middle(bounds), bounds) <= most) {
        clock->era++; /* the offset was wrong, and changes */
        clock->era_began = sample->boottime;
        clock->has_offset = false;
    }
    if (clock->has_offset && clock->was_bound)
        slew_locked(clock, sample, bounds);
    else
        clock->offset = middle(bounds);
    clock->has_offset = clock->has_guess = true;
}

/* --- a look ----------------------------------------------------------------------------------- */

static int64_t find_error_locked(struct node_clock *clock, const struct clock_sample *sample)
{
    check_held(&clock->lock);
    struct bounds bounds;
    struct node_clock_status *status = &clock->status;
    status->error = -1;
    status->is_vouched = clock->vouched >= 0;
    status->state = find_bounds_locked(clock, sample, &bounds);
    if (status->state != CLOCK_BOUND)
        return -1;
    set_offset_locked(clock, sample, &bounds);
    int64_t error = error_at(clock->offset, &bounds);
    status->error = error > clock->options.error_least ? error : clock->options.error_least;
    clock->was_bound = status->error <= clock->options.error_most;
    if (!clock->was_bound)
        status->state = CLOCK_WIDE;
    return status->state == CLOCK_WIDE ? -1 : status->error;
}

void node_clock_look_at(struct node_clock *clock, const struct clock_sample *sample,
                        struct clock_look *ret)
{
    LOCK_SCOPE(&clock->lock);
    notice_end_of_era_locked(clock, sample);
    ret->boottime = sample->boottime;
    ret->error = find_error_locked(clock, sample);
    ret->now = clock->has_guess ? sample->boottime + clock->offset : sample->wall;
    ret->era = clock->era;
    ret->era_began = clock->era_began;
    if (sample->boottime > clock->last.boottime)
        clock->last = *sample; /* another thread may have stored a later one */
}

void node_clock_is_watched_at(struct node_clock *clock, bool is_watched,
                              const struct clock_sample *sample)
{
    struct clock_look look;
    node_clock_look_at(clock, sample, &look);
    LOCK_SCOPE(&clock->lock);
    clock->is_watched = is_watched;
}

void node_clock_vouch(struct node_clock *clock, int64_t error)
{
    LOCK_SCOPE(&clock->lock);
    clock->vouched = error;
}

/* --- readings --------------------------------------------------------------------------------- */

void node_clock_read_medium_at(struct node_clock *clock, const struct tier_reading *reading,
                               const struct clock_sample *sample)
{
    struct clock_look look;
    node_clock_look_at(clock, sample, &look);
    LOCK_SCOPE(&clock->lock);
    clock->needs_medium = reading->is_shared && clock->options.needs_medium;
    if (reading->asked < clock->era_began)
        return;
    if (!reading->is_shared) {
        clock->read_at = *sample;
        return;
    }
    struct bounds bounds = {reading->least - reading->answered, reading->most - reading->asked};
    struct bounds known = medium_now(clock, sample);
    if (clock->has_medium && !intersect(&bounds, &known)) {
        clock->status.steps++; /* the medium's clock was set, or ours drifted */
        clock->status.step = middle(&bounds) - middle(&known);
        begin_era_locked(clock, sample);
    }
    clock->medium = bounds;
    clock->read_at = *sample;
    clock->took = (reading->answered - reading->asked) / 2;
    clock->has_whole_seconds = reading->most - reading->least > WHOLE_SECONDS;
    clock->turns++;
    clock->has_medium = true;
}

/* If a server's time has whole seconds, a reading is most useful when its second may or may not
 * have just changed: the answer halves the uncertainty. */
static int64_t next_turn_locked(struct node_clock *clock, int64_t from)
{
    check_held(&clock->lock);
    int64_t phase = (from + clock->took + middle(&clock->medium)) % SECOND_NS;
    return from + (SECOND_NS - phase) % SECOND_NS;
}

int64_t node_clock_next_reading_at(struct node_clock *clock, const struct clock_sample *sample)
{
    struct clock_look look;
    node_clock_look_at(clock, sample, &look);
    LOCK_SCOPE(&clock->lock);
    int64_t from = look.boottime, again = clock->read_at.boottime + READ_AGAIN_NS;
    bool is_narrow = !clock->has_medium || clock->turns > TURNS_MAX ||
                     (clock->medium.most - clock->medium.least) / 2 <= NARROW_NS;
    bool is_urgent = !clock->has_medium && clock->needs_medium;
    if (is_narrow && !is_urgent && clock->read_at.boottime && again > from)
        from = again;
    else if (!is_urgent && from == clock->read_at.boottime)
        from++;
    if (clock->has_medium && clock->has_whole_seconds)
        from = next_turn_locked(clock, from);
    return from - look.boottime;
}

void node_clock_status_at(struct node_clock *clock, const struct clock_sample *sample,
                          struct node_clock_status *ret)
{
    struct clock_look look;
    node_clock_look_at(clock, sample, &look);
    LOCK_SCOPE(&clock->lock);
    *ret = clock->status;
}

/* --- with the clocks of the kernel ------------------------------------------------------------ */

/* All three at one moment, as far as the scheduler allows. */
static void take_sample(struct clock_sample *ret)
{
    for (int i = 0; i < SAMPLES_MAX; i++) {
        ret->boottime = clock_boottime_ns();
        ret->wall = clock_realtime_ns();
        ret->raw = clock_ns(CLOCK_MONOTONIC_RAW);
        if (clock_boottime_ns() - ret->boottime < SAMPLE_NS)
            return;
    }
}

void node_clock_look(struct node_clock *clock, struct clock_look *ret)
{
    struct clock_sample sample;
    take_sample(&sample);
    node_clock_look_at(clock, &sample, ret);
}

void node_clock_is_watched(struct node_clock *clock, bool is_watched)
{
    struct clock_sample sample;
    take_sample(&sample);
    node_clock_is_watched_at(clock, is_watched, &sample);
}

void node_clock_read_medium(struct node_clock *clock, const struct tier_reading *reading)
{
    struct clock_sample sample;
    take_sample(&sample);
    node_clock_read_medium_at(clock, reading, &sample);
}

int64_t node_clock_next_reading(struct node_clock *clock)
{
    struct clock_sample sample;
    take_sample(&sample);
    return node_clock_next_reading_at(clock, &sample);
}

void node_clock_status(struct node_clock *clock, struct node_clock_status *ret)
{
    struct clock_sample sample;
    take_sample(&sample);
    node_clock_status_at(clock, &sample, ret);
}
