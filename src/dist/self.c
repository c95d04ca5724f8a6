/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of one process alone: what it moves is there already. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dist/transport.h"

struct bl_transport {
    int nothing;
};

static bl_transport the;

static belay_code open_self(bl_transport **out, bl_transport_place *place, bl_error *error)
{
    (void)error;
    *place = (bl_transport_place){.size = 1, .local_size = 1, .words = "one process"};
    if (gethostname(place->host, sizeof place->host) != 0)
        snprintf(place->host, sizeof place->host, "unknown");
    place->host[sizeof place->host - 1] = '\0';
    *out = &the;
    return BELAY_OK;
}

static void close_self(bl_transport *transport, bool whole) { (void)transport, (void)whole; }

static belay_code all_reduce(bl_transport *transport, bl_plane plane, void *data, int64_t n, belay_dtype dtype,
                             belay_group_op op, int *request, bl_error *error)
{
    (void)transport, (void)plane, (void)data, (void)n, (void)dtype, (void)op, (void)error;
    *request = 0;
    return BELAY_OK;
}

static belay_code broadcast(bl_transport *transport, bl_plane plane, void *data, int64_t n_bytes, int root,
                            int *request, bl_error *error)
{
    (void)transport, (void)plane, (void)data, (void)n_bytes, (void)root, (void)error;
    *request = 0;
    return BELAY_OK;
}

static belay_code all_gather(bl_transport *transport, bl_plane plane, const void *mine, void *all, int64_t n_bytes,
                             int *request, bl_error *error)
{
    (void)transport, (void)plane, (void)error;
    if (n_bytes > 0)
        memmove(all, mine, (size_t)n_bytes);
    *request = 0;
    return BELAY_OK;
}

/* There is no other rank. */
static belay_code refuse(bl_error *error)
{
    return bl_error_set(error, BELAY_BUG_INVARIANT, "a process that is alone was asked for a message");
}

static belay_code send(bl_transport *transport, int peer, const void *data, int64_t n_bytes, int *request,
                       bl_error *error)
{
    (void)transport, (void)peer, (void)data, (void)n_bytes, (void)request;
    return refuse(error);
}

static belay_code receive(bl_transport *transport, int peer, void *data, int64_t n_bytes, int *request, bl_error *error)
{
    (void)transport, (void)peer, (void)data, (void)n_bytes, (void)request;
    return refuse(error);
}

static belay_code test(bl_transport *transport, int request, bool *is_done, bl_error *error)
{
    (void)transport, (void)request, (void)error;
    *is_done = true;
    return BELAY_OK;
}

const bl_transport_api bl_transport_self = {.version = BL_TRANSPORT_VERSION,
                                            .name = "self",
                                            .open = open_self,
                                            .close = close_self,
                                            .all_reduce = all_reduce,
                                            .broadcast = broadcast,
                                            .all_gather = all_gather,
                                            .send = send,
                                            .receive = receive,
                                            .test = test};
