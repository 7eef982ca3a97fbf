// SPDX-License-Identifier: Apache-2.0
/* Inside the service. */
#pragma once

#include <cjson/cJSON.h>
#include <stdatomic.h>

#include "base/event.h"
#include "base/lock.h"
#include "daemon/figures.h"
#include "daemon/lifecycle.h"
#include "daemon/metrics_server.h"
#include "daemon/service.h"
#include "fs/fs.h"
#include "store/local_snapshots.h"
#include "fuse/front.h"
#include "store/store.h"
#include "take/take.h"

/* For how long limits stay lifted for a waiter that does not poll again. */
#define URGENT_LEASE_NS (3ll * 1000000000)
#define TICK_MS 1000

struct upload_sample {
    int64_t at; /* monotonic, ns */
    uint64_t bytes;
};

/* The state of a service for its remote, in addition to that of the store. */
struct remote_side {
    char *name, *holder;       /* used by the store */
    _Atomic bool drain_at_end; /* the end of the service waits for the remote */
    _Atomic bool is_drained;   /* everything is in the remote, or never will be */
    _Atomic bool wait_ended;   /* the function of `ticket` was called */
    struct {
        struct cairn_mutex lock;
        /* The rate of the upload is measured from `older` on. */
        struct upload_sample older, newer;
        bool waits; /* `ticket` belongs to a waiter outside the service */
        uint64_t ticket;
        int64_t urge_until; /* monotonic, ns */
    } locked;
};

enum upgrade_state { UPGRADE_NONE, UPGRADE_CHECKS, UPGRADE_ASKED };
enum service_life { SERVICE_STARTS, SERVICE_SERVES, SERVICE_ENDS };

struct service {
    struct service_plan plan;
    const struct mount_options *options;
    char *store_path, *mountpoint;
    uint64_t shown, shown_root; /* of -o at= without a remote: a snapshot, and its root; 0: none */
    char *rejoined_path;        /* used by the front; NULL: this mount is none of several nodes */
    struct store *store;
    struct commit *commit; /* the store's */
    struct fs *fs;
    struct take *take; /* NULL: this mount is none of several nodes */
    _Atomic bool take_ends;
    struct front *_Atomic front; /* NULL: not there yet. Threads of the store read it. */
    int stop_fd;
    int64_t started;
    /* between the death of the daemon before and the start of our service; 0: there was none */
    int64_t pause_ns;
    uint64_t stage_bytes;
    struct metrics_server *metrics; /* NULL: none */
    _Atomic bool is_stopped;        /* service_stop() was called */
    struct {
        _Atomic enum upgrade_state state;
        /* set by the thread that has UPGRADE_CHECKS; read with UPGRADE_ASKED by the thread of
         * service_serve() */
        char *binary;
        _Atomic unsigned given_up;  /* attempts that ended before anything changed, */
        const char *_Atomic reason; /* and the reason of the last one; static */
    } upgrade;
    struct {
        /* why a lost view is not made anew, static; NULL: it is not lost, or will be made anew */
        const char *_Atomic stays;
        /* monotonic ns, of the thread of service_serve(): when the loss was found; the next
         * attempt */
        int64_t since, again_at;
        uint64_t seq; /* the newest operation at that time */
    } renewal;
    struct {
        _Atomic int64_t opens; /* node_on_open(); 0: any time */
        int64_t again_at;      /* monotonic ns, of the thread of service_serve() */
        unsigned tries;
        bool is_refused;
    } back;
    _Atomic enum service_life life; /* the state that the metrics server may read */
    struct remote_side remote;
};

/* The values of all figures, at one moment. */
struct snapshot {
    unsigned has; /* OF_MOUNT and others */
    struct store_status store;
    struct remote_status remote;
    struct remote_unpublished unpublished; /* with OF_FENCED */
    uint64_t history_bytes;                /* with OF_REMOTE */
    struct local_snapshots_cost snapshots;
    struct front_status front;
    struct take_status take;
    struct stage_usage stage;
    uint64_t pid, uptime_s, resident_bytes, errors_total, errors_forgotten;
    uint64_t stage_is_removed, successor_ready; /* 0 or 1 */
    uint64_t last_error_s_ago;                  /* with OF_ERROR */
    uint64_t reduced_bytes, remote_reduced_bytes, upload_bytes_per_s;
    bool has_holder, wants_holder;
    unsigned deaths, view_deaths;
    double pause_s;
    struct fs_lane lanes; /* sums */
    uint64_t lanes_forgotten;
};

/* The verbs of requests (service.h), each with its handler: handle_status() and so on. */
/* clang-format off */
#define SERVICE_VERBS(X) \
    X(status) X(need) X(horizon) X(damaged) X(urgent) X(drain) X(ping) X(end) X(upgrade) X(warm) \
    X(warm_status) X(look) X(survey) X(users) X(extents) X(differ) X(metrics) X(job) X(job_start) \
    X(job_cancel) X(name) X(named) X(kept) X(nodes) X(rejoin)
/* clang-format on */
#define DECLARE_HANDLER(verb) cJSON *handle_##verb(struct service *service, const cJSON *request);
SERVICE_VERBS(DECLARE_HANDLER)

/* service.c */
/* Reports the progress of the end, at most once a second: *reported_at is the time of the last
 * report, 0 at first. */
void service_report_ending(struct service *service, uint64_t bytes_left, bool remote,
                           int64_t *reported_at);

/* service_take.c: with -o nodes, the mount also shows the changes of other nodes. */
CAIRN_MUST_CHECK int service_take_start(struct service *service, struct service_error *error);
void service_take_end(struct service *service);
/* Adds the status of take; its memory is counted with the store's. */
void service_take_look(struct service *service, struct snapshot *s);

/* service_remote.c */
void remote_side_init(struct service *service);
/* Fills the store's options of its remote, and opens its tier; does nothing without a remote. */
CAIRN_MUST_CHECK int remote_side_open(struct service *service, struct remote_options *ret,
                                      struct service_error *ret_error);
/* As remote_side_open(), to read the other nodes' data there. */
CAIRN_MUST_CHECK int remote_side_open_to_read(struct service *service, struct remote_options *ret,
                                              struct service_error *ret_error);
/* To be called about once in TICK_MS. */
void remote_side_tick(struct service *service);
/* Called when NVMe has everything: waits for the remote if this was requested. */
void remote_side_end(struct service *service);
/* Requests this wait, or cancels the request. Any thread. */
void remote_side_drain_at_end(struct service *service, bool wanted);
/* Called after the store is closed. */
void remote_side_done(struct service *service);

/* Returns true if the remote will receive the data written here. */
bool remote_side_is_usable(struct service *service);
/* Returns the answer to a wait that cannot succeed, with the reason. */
cJSON *remote_side_refusal(struct service *service);
/* Raises *seq to the operation that the remote's horizon must include for everything below
 * `ino`. */
CAIRN_MUST_CHECK int remote_side_need(struct service *service, uint64_t ino, uint64_t *seq);
uint64_t remote_side_missing_bytes(struct service *service, uint64_t seq);
/* Lifts the limits of the upload until that time (monotonic, ns; 0: no longer). */
void remote_side_urge(struct service *service, int64_t until);
void remote_side_add_horizon(struct service *service, uint64_t newest, cJSON *reply);
void remote_side_look(struct service *service, struct snapshot *s);
const char *remote_state_word(enum remote_state state);

/* service_upgrade.c */
/* Hands the mount over if this was requested, and then does not return. True: it was requested, but
 * the service continues. */
bool service_upgrade_try(struct service *service);
/* Returns whether there is a holder. */
bool service_has_holder(const struct service *service);
/* Returns whether the service continues a mount whose daemon died, or was replaced. */
static inline bool service_is_adopting(const struct service *service)
{
    return service->plan.holder_link && service->plan.holder_link->is_adopting;
}
/* Reports the result of the last upgrade in the log and in the status. */
void service_upgrade_report(const struct service *service);
void service_upgrade_add_status(const struct service *service, cJSON *successor);

/* service_renew.c */
/* To be called about once in TICK_MS, by the thread of service_serve(). Does not return if the
 * daemon ends for its successor. */
void service_renew_tick(struct service *service);

/* Ends the daemon by a signal that shows the reason. Does not return. */
void service_end_for_successor(const struct service *service, int signal_number);

/* service_back.c */
/* To be called about once in TICK_MS, as service_renew_tick(). */
void service_back_tick(struct service *service);
void service_on_open(void *service, int64_t opens);

/* service_status.c */
/* Returns the status, and its numbers in *ret. */
cJSON *service_status(struct service *service, struct snapshot *ret);

/* service_metrics.c */
CAIRN_MUST_CHECK int service_metrics_start(struct service *service,
                                           struct service_error *ret_error);
