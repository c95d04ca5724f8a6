/* SPDX-License-Identifier: Apache-2.0 */
/* A device: a folder behind this table of functions.  A device knows kernels and memory; it knows no tensors.
 *
 * Every function takes the device first.  Addresses are the device's own: only `copy_*` and kernels may read them. */
#ifndef BL_DEVICE_DEVICE_H
#define BL_DEVICE_DEVICE_H

#include <belay/fault.h>

#include "base/error.h"
#include "kernel/row.h"

typedef struct bl_device bl_device;

typedef struct bl_device_options {
    int ordinal;
    int threads; /* 0: as many as this process may run on */
} bl_device_options;

typedef struct bl_device_api {
    const char *kind; /* "cpu" */
    bool synchronous; /* a launch has ended when it returns */

    belay_code (*open)(const bl_device_options *options, bl_device **out, bl_error *error);
    void (*close)(bl_device *device);

    /* Raw blocks at 64-byte alignment, from the device's pool; NULL when there is no memory.  A block goes back with
     * the size that it was asked for. */
    void *(*take)(bl_device *device, int64_t n_bytes);
    void (*give)(bl_device *device, void *block, int64_t n_bytes);

    /* Runs a proved launch.  type.dtype: the device has no code for this op in this dtype; mem.exhausted. */
    belay_code (*run)(bl_device *device, const bl_launch *launch);

    void (*copy_in)(bl_device *device, void *to, const void *host, int64_t n_bytes);
    void (*copy_out)(bl_device *device, void *host, const void *from, int64_t n_bytes);

    /* The ring that this device's kernels write; readable by the host. */
    bl_fault_ring *(*ring)(bl_device *device);

    /* Waits for all work. */
    void (*synchronise)(bl_device *device);

    /* Bytes in use by blocks taken, held by the pool, and the most that were ever in use. */
    void (*memory)(const bl_device *device, int64_t *in_use, int64_t *held, int64_t *peak);
    int (*threads)(const bl_device *device);
} bl_device_api;

struct bl_device {
    const bl_device_api *api;
    int ordinal;
    char name[16]; /* "cpu", "cuda:0" */
};

/* The device of that name ("cpu"); place.absent when it is not on this machine or not in this build, conf.value when
 * the name is none. */
belay_code bl_device_open(const char *name, int threads, bl_device **out, bl_error *error);
void bl_device_close(bl_device *device);

/* Bounded pool of freed blocks by size class, shared by devices whose memory comes from the host. */
typedef struct bl_pool bl_pool;
bl_pool *bl_pool_new(void);
void bl_pool_free(bl_pool *pool);
void *bl_pool_take(bl_pool *pool, int64_t n_bytes);
void bl_pool_give(bl_pool *pool, void *block, int64_t n_bytes);
void bl_pool_memory(const bl_pool *pool, int64_t *in_use, int64_t *held, int64_t *peak);

#endif
