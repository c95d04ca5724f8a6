/* SPDX-License-Identifier: Apache-2.0 */
/* A device: a folder behind this table of functions.  A device knows kernels, memory and streams; it knows no tensors.
 *
 * Every function takes the device first.  Addresses are the device's own: only copies and kernels may read them.
 *
 * A stream is a queue of commands that run in order; stream 0 is there from the start.  Commands (a run, a copy) of one
 * stream are counted from 1 by the order of their calls: "stream s up to number n" is all that an event is.  A device
 * that is `synchronous` has one stream, and every command has ended when its call returns.
 *
 * What a call gives back is its own failure.  What a kernel meets is learned later: bad indices from the fault ring, an
 * illegal access from `loss`.  After one, the device is lost: every command is place.lost and does nothing. */
#ifndef BL_DEVICE_DEVICE_H
#define BL_DEVICE_DEVICE_H

#include <belay/fault.h>

#include "base/error.h"
#include "device/pool.h"
#include "kernel/row.h"

typedef struct bl_device bl_device;

enum { BL_MAX_DEVICE_STREAMS = 8 };

/* A launch that has run: when, in nanoseconds of base/clock.h. */
typedef struct bl_device_ran {
    int place, stream; /* place: as bl_device_options said */
    const char *name;  /* the op, or the user's kernel */
    uint64_t launch;
    int64_t start, end;
} bl_device_ran;

typedef struct bl_device_options {
    int ordinal;
    int threads;                                        /* 0: as many as this process may run on */
    bl_memory_mode memory;                              /* how blocks lie */
    bool poison;                                        /* fresh and freed blocks are filled with patterns */
    int place;                                          /* what the opener calls the device */
    void (*ran)(void *state, const bl_device_ran *ran); /* told of every launch on any thread; NULL: nobody is */
    void *ran_state;
} bl_device_options;

/* An illegal access: what is known of the first one. */
typedef struct bl_access {
    uint64_t launch;  /* serial of the launch whose kernel did it, 0: not known */
    uint64_t address; /* the device's address, 0: not known */
    bool is_write;    /* where that is known */
    bool is_write_known;
} bl_access;

typedef struct bl_device_api {
    const char *kind; /* "cpu" */
    bool synchronous; /* a command has ended when its call returns */

    belay_code (*open)(const bl_device_options *options, bl_device **out, bl_error *error);
    void (*close)(bl_device *device);
    /* Devices of this kind on this machine and in this build. */
    int (*count)(void);

    /* Raw blocks at 64-byte alignment, from the device's pool; NULL when there is no memory.  A block goes back with
     * the size that it was asked for, when every command that may touch it has ended. */
    void *(*take)(bl_device *device, int64_t n_bytes);
    void (*give)(bl_device *device, void *block, int64_t n_bytes);
    /* The pool behind them: figures, red zones, what it holds back. */
    bl_pool *(*pool)(bl_device *device);

    /* Puts a proved launch into a stream.  type.dtype: the device has no code for this op in this dtype; mem.exhausted;
     * place.lost. */
    belay_code (*run)(bl_device *device, int stream, const bl_launch *launch);

    /* Puts a copy into a stream.  The host's bytes may change, or are there, when the call returns. */
    belay_code (*copy_in)(bl_device *device, int stream, void *to, const void *host, int64_t n_bytes);
    belay_code (*copy_out)(bl_device *device, int stream, void *host, const void *from, int64_t n_bytes);
    int64_t most_staged; /* bytes that copy_in takes without waiting for the copy; unused where all is synchronous */
    /* The same without waiting: the host's bytes must stay as they are, or are there, when the command has ended. */
    belay_code (*copy_in_later)(bl_device *device, int stream, void *to, const void *host, int64_t n_bytes);
    belay_code (*copy_out_later)(bl_device *device, int stream, void *host, const void *from, int64_t n_bytes);

    /* Streams beside number 0; size.overflow when there are BL_MAX_DEVICE_STREAMS. */
    belay_code (*stream_open)(bl_device *device, int *stream);
    /* Waits for its work first. */
    void (*stream_close)(bl_device *device, int stream);
    /* What is put into `stream` from now on runs after command `number` of stream `of` of `other`, a device of the same
     * kind.  This is a command of its own and counts. */
    belay_code (*stream_wait)(bl_device *device, int stream, bl_device *other, int of, uint64_t number);
    /* What is put into `stream` from now on runs once *word, which is the host's and grows, has been `value` or more: it is
     * read with acquire order, and is there until this command, which counts as one, has ended.  The host does not wait.
     * A device that is lost, or closes, does not wait for it either.  NULL on a synchronous device. */
    belay_code (*stream_hold)(bl_device *device, int stream, const uint64_t *word, uint64_t value);
    /* Commands of a stream that were put into it, and how many of them have ended. */
    uint64_t (*stream_put)(const bl_device *device, int stream);
    uint64_t (*stream_passed)(bl_device *device, int stream);
    /* From now on *shown, too, is the count of a stream's ended commands, written with release order; NULL ends that.
     * A synchronous device shows none. */
    void (*stream_show)(bl_device *device, int stream, uint64_t *shown);
    /* Waits until that many have ended; place.lost when the device is. */
    belay_code (*stream_synchronise)(bl_device *device, int stream, uint64_t number);
    /* Waits for all work of all streams. */
    belay_code (*synchronise)(bl_device *device);

    /* The first illegal access, or NULL. */
    const bl_access *(*loss)(const bl_device *device);

    int (*threads)(const bl_device *device);
} bl_device_api;

struct bl_device {
    const bl_device_api *api;
    int ordinal;
    const void *range; /* of bl_trap_range_add: addresses that the host must not touch; NULL: none */
    char name[16];     /* "cpu", "cuda:0" */
};

/* The device of that name ("cpu", "sim:1"); place.absent when it is not on this machine or not in this build, conf.value
 * when the name is none.  `options->ordinal` is taken from the name. */
belay_code bl_device_open(const char *name, const bl_device_options *options, bl_device **out, bl_error *error);
void bl_device_close(bl_device *device);
/* Whether it is the name of a kind, such as "sim", without a number. */
bool bl_device_is_kind(const char *name);
/* Kinds in the order of the list, NULL past the end. */
const bl_device_api *bl_device_kind(int number);

#endif
