// SPDX-License-Identifier: Apache-2.0
/* A view that the mount cannot repair is made anew by the daemon's successor (commit/new_view.c).
 * This daemon ends for that purpose, by a signal that shows the holder the reason, when all
 * operations so far are in the journal and no work is under way. Its death is handled as any other:
 * the stage has the rest, and the kernel the unanswered requests.
 *
 * A disk that damages each view must not cause a chain of deaths: VIEWS_MAX in the life of a mount,
 * REST_NS apart, and each only if the successor will find its state. Otherwise the mount continues
 * with the damaged view, and status and /healthz report it. */
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/holder_link.h"
#include "daemon/service_internal.h"

#define VIEWS_MAX 3u
#define REST_NS (600ll * 1000000000)
#define DURABLE_PATIENCE_NS (10ll * 1000000000)
#define BUSY_REST_NS (60ll * 1000000000)

static const char *obstacle_of(struct service *service, const char *stays)
{
    const struct holder_link *holder_link = service->plan.holder_link;
    if (stays)
        return stays;
    if (!service_has_holder(service))
        return "there is no successor; unmount and mount again";
    if (holder_link->view_deaths >= VIEWS_MAX)
        return "it was rebuilt too often during this mount; check the disk, unmount and mount "
               "again";
    int64_t rest =
        REST_NS > service->options->crash_window_ns ? REST_NS : service->options->crash_window_ns;
    if (holder_link->view_deaths > 0 && clock_monotonic_ns() - service->started < rest)
        return "it was rebuilt a moment ago; check the disk";
    return NULL;
}

static void report_refused(struct service *service, const char *reason)
{
    if (atomic_exchange(&service->renewal.stays, reason) != reason && reason)
        log_error("the view is not rebuilt now: %s", reason);
}

/* Returns whether the operations up to the damage are in the journal, or waiting for them is
 * useless. */
static bool is_settled(struct service *service)
{
    int64_t now = clock_monotonic_ns();
    if (!service->renewal.since) {
        service->renewal.since = now;
        service->renewal.seq = history_newest(service->commit->history);
    }
    horizon_urge(service->commit->horizon, now + URGENT_LEASE_NS);
    return horizon_reached(service->commit->horizon) >= service->renewal.seq ||
           now - service->renewal.since > DURABLE_PATIENCE_NS;
}

void service_end_for_successor(const struct service *service, int signal_number)
{
    sigset_t set;
    log_tick();
    (void)signal(signal_number, SIG_DFL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, signal_number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    holder_die(service->plan.holder_link->link_fd, signal_number);
    (void)raise(signal_number);
    _exit(MOUNT_SYSTEM); /* not reached */
}

static void hand_over(struct service *service)
{
    if (front_hold(service->front) < 0) {
        service->renewal.again_at = clock_monotonic_ns() + BUSY_REST_NS;
        report_refused(
            service,
            "long calls are in progress and would fail with EIO: this kernel cannot resend them");
        return;
    }
    if (new_view_ask(service->commit->local) < 0) {
        front_release(service->front);
        service->renewal.again_at = clock_monotonic_ns() + BUSY_REST_NS;
        report_refused(service, "the store is not writable");
        return;
    }
    log_warn("the view is damaged: this daemon exits, and its successor rebuilds the view");
    service_end_for_successor(service, HOLDER_NEW_VIEW_SIGNAL);
}

void service_renew_tick(struct service *service)
{
    const char *stays = NULL;
    if (!commit_view_is_lost(service->commit, &stays)) {
        service->renewal.since = 0;
        report_refused(service, NULL);
        return;
    }
    if (atomic_load(&service->is_stopped) || atomic_load(&service->upgrade.state) != UPGRADE_NONE ||
        clock_monotonic_ns() < service->renewal.again_at)
        return;
    stays = obstacle_of(service, stays);
    report_refused(service, stays);
    if (!stays && is_settled(service))
        hand_over(service);
}
