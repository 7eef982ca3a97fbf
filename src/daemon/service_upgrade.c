// SPDX-License-Identifier: Apache-2.0
/* The daemon's part of an exchange of the program: upgrade.h. */
#include <poll.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "daemon/control.h"
#include "daemon/holder_link.h"
#include "daemon/service_internal.h"
#include "daemon/upgrade.h"

bool service_has_holder(const struct service *service)
{
    const struct holder_link *holder_link = service->plan.holder_link;
    struct pollfd link = {.fd = holder_link ? holder_link->link_fd : -1, .events = 0};
    return link.fd >= 0 && poll(&link, 1, 0) == 0; /* an event means that the holder has ended */
}

static int check_binary(struct service *service, const char *binary, char **ret_text)
{
    struct holder_link holder_link = *service->plan.holder_link;
    struct handover_source from = {.store = service->store_path,
                                   .mountpoint = service->mountpoint,
                                   .options = service->options,
                                   .holder_link = &holder_link};
    front_passport(service->front, &holder_link.adopted.passport, &holder_link.adopted.fd);
    /* the other program that is asked receives none of these descriptors */
    holder_link.link_fd = holder_link.lock_fd = holder_link.adopted.fd = -1;
    return upgrade_check(binary, &from, ret_text);
}

cJSON *handle_upgrade(struct service *service, const cJSON *request)
{
    const char *binary = json_text(request, "binary");
    _cleanup_free_ char *text = NULL;
    if (!binary || *binary != '/' || strlen(binary) >= HOLDER_PATH_MAX)
        return control_error(EINVAL, "upgrade: the absolute path of a program is missing");
    if (!service_has_holder(service))
        return control_error(EOPNOTSUPP,
                             "the mount has no holder process (-o successor=off, or -f without "
                             "successor=on); unmount, then mount with the other version");
    enum upgrade_state none = UPGRADE_NONE;
    if (!atomic_compare_exchange_strong(&service->upgrade.state, &none, UPGRADE_CHECKS))
        return control_error(EBUSY, "another upgrade of the mount is in progress");
    int r = check_binary(service, binary, &text);
    if (r < 0) {
        atomic_store(&service->upgrade.state, UPGRADE_NONE);
        return control_error(-r, text);
    }
    log_info("asked to hand the mount over to %s, version %s", binary, text);
    service->upgrade.binary = xstrdup(binary);
    atomic_store(&service->upgrade.state, UPGRADE_ASKED);
    (void)eventfd_write(service->stop_fd, 1);
    return cJSON_CreateObject();
}

static void upgrade_give_up(struct service *service, const char *reason)
{
    check(atomic_load(&service->upgrade.state) == UPGRADE_ASKED);
    log_warn("upgrade aborted: %s", reason);
    atomic_store(&service->upgrade.reason, reason);
    free(service->upgrade.binary);
    service->upgrade.binary = NULL;
    atomic_fetch_add(&service->upgrade.given_up, 1);
    atomic_store(&service->upgrade.state, UPGRADE_NONE);
}

bool service_upgrade_try(struct service *service)
{
    eventfd_t count;
    if (atomic_load(&service->upgrade.state) != UPGRADE_ASKED)
        return false;
    (void)eventfd_read(service->stop_fd, &count);
    if (atomic_load(&service->is_stopped))
        return false; /* the mount ends: the next daemon has nothing to continue */
    int r = front_hold(service->front);
    if (r < 0) {
        upgrade_give_up(
            service,
            "long calls are in progress (writers waiting for space, or fsyncs for the remote) and "
            "would fail with EIO: this kernel cannot resend them (Linux 6.9 can); try again later");
        return true;
    }
    if (atomic_load(&service->is_stopped)) { /* during the wait for calls */
        front_release(service->front);
        return false;
    }
    r = holder_upgrade(service->plan.holder_link->link_fd, service->upgrade.binary);
    if (r < 0) {
        front_release(service->front);
        upgrade_give_up(service, "the holder process does not answer");
        return true;
    }
    log_info("no call is in progress: handing the mount over");
    log_tick();
    _exit(MOUNT_OK); /* the stage has everything, as after a death */
}

void service_upgrade_report(const struct service *service)
{
    const struct holder_link *holder_link = service->plan.holder_link;
    double pause = (double)service->pause_ns / 1e9;
    if (*holder_link->upgrade_error)
        log_warn("upgrade failed: %s; version %s took the mount back, %.2f s later",
                 holder_link->upgrade_error, CAIRN_VERSION, pause);
    else
        log_info("took over the mount from version %s, %.2f s later", holder_link->version_before,
                 pause);
}

void service_upgrade_add_status(const struct service *service, cJSON *successor)
{
    const struct holder_link *holder_link = service->plan.holder_link;
    unsigned given_up = atomic_load(&service->upgrade.given_up);
    const char *reason = given_up      ? atomic_load(&service->upgrade.reason)
                         : holder_link ? holder_link->upgrade_error
                                       : "";
    control_add_u64(successor, "upgrades", holder_link ? holder_link->upgrades : 0);
    control_add_u64(successor, "upgrade_tries", holder_link ? holder_link->upgrade_tries : 0);
    control_add_u64(successor, "upgrades_given_up", given_up);
    (void)cJSON_AddBoolToObject(successor, "upgrading",
                                atomic_load(&service->upgrade.state) != UPGRADE_NONE);
    if (*reason)
        (void)cJSON_AddStringToObject(successor, "upgrade_error", reason);
}
