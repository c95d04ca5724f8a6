/* SPDX-License-Identifier: Apache-2.0 */
/* What moves bytes between ranks: a table of functions, filled by `self` here or by a plug-in (libbelay_mpi.so).
 *
 * Every function is called by one thread, the group's worker, `open` first.  Nothing here waits: an operation is started,
 * and `test` asks whether it has ended.  Memory is the host's and stays until the operation has ended; after a failure an
 * operation is abandoned, and its memory is never used again by anybody.  Operations of one plane are started in the same
 * order by all ranks.  An error says what the transport said; it never ends the process. */
#ifndef BL_DIST_TRANSPORT_H
#define BL_DIST_TRANSPORT_H

#include <belay/dist.h>

#include "base/error.h"
#include "base/text.h"

enum { BL_TRANSPORT_VERSION = 1 };

/* Two planes that never meet: a bucket on its way does not stand in front of an agreement. */
typedef enum bl_plane { BL_PLANE_WORDS, BL_PLANE_DATA, BL_N_PLANES } bl_plane;

typedef struct bl_transport bl_transport;

/* Where this rank stands. */
typedef struct bl_transport_place {
    int rank, size;
    int local_rank, local_size; /* among those of its host */
    int leader;                 /* the lowest rank of its host */
    char host[64];
    char words[96]; /* "Open MPI 4.1.4" */
} bl_transport_place;

typedef struct bl_transport_api {
    uint32_t version; /* BL_TRANSPORT_VERSION */
    const char *name; /* "mpi" */
    /* comm.absent, comm.failed. */
    belay_code (*open)(bl_transport **out, bl_transport_place *place, bl_error *error);
    /* Tells no peer.  `whole`: nothing failed, and all ranks close.  Else whatever would wait for others is left out. */
    void (*close)(bl_transport *transport, bool whole);

    /* Each starts an operation and gives its number, which is free again once it has ended. */
    belay_code (*all_reduce)(bl_transport *transport, bl_plane plane, void *data, int64_t n, belay_dtype dtype,
                             belay_group_op op, int *request, bl_error *error);
    belay_code (*broadcast)(bl_transport *transport, bl_plane plane, void *data, int64_t n_bytes, int root,
                            int *request, bl_error *error);
    /* all: [size][n_bytes] */
    belay_code (*all_gather)(bl_transport *transport, bl_plane plane, const void *mine, void *all, int64_t n_bytes,
                             int *request, bl_error *error);
    /* Messages between two ranks, of one size each (heartbeats). */
    belay_code (*send)(bl_transport *transport, int peer, const void *data, int64_t n_bytes, int *request,
                       bl_error *error);
    belay_code (*receive)(bl_transport *transport, int peer, void *data, int64_t n_bytes, int *request,
                          bl_error *error);
    /* *is_done once the operation has ended, well or (with the error's code) not. */
    belay_code (*test)(bl_transport *transport, int request, bool *is_done, bl_error *error);

    /* Every call of a process must come of one thread, which is kept for the next group.  At the process's end, and only
     * when all its groups were whole, that thread calls `finish`, which may wait for the other ranks. */
    bool is_lasting;
    void (*finish)(bl_transport *transport);
} bl_transport_api;

/* What a plug-in exports: `const bl_transport_api *bl_transport_plugin(void)`. */
typedef const bl_transport_api *(*bl_transport_plugin_function)(void);
#define BL_TRANSPORT_PLUGIN "bl_transport_plugin"

/* That of one process alone. */
extern const bl_transport_api bl_transport_self;

/* *folder: where the plug-in of that name lies, of the places where it is looked for without BELAY_PLUGINS; "" where it is
 * in none. */
void bl_transport_find(const char *name, bl_text *folder);

/* The plug-in of that name, loaded once and never unloaded: from BELAY_PLUGINS, else beside this library or program, else
 * in ../lib/belay and belay/ as seen from there.  comm.absent, which names the places that were looked at. */
BL_MUST_USE belay_code bl_transport_load(const char *name, const bl_transport_api **out, bl_error *error);

#endif
