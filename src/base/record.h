/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts that outlive a launch or the process: the fault record and its ring (written by kernels), and the journal's
 * sections (written by the host before each launch, read after kill -9).  Plain data, one layout in C and CUDA C++.
 *
 * Journal file, version 2, native byte order, every section at a multiple of 64 bytes:
 *
 *   bl_journal_head | op names | code names | module map | string arena | sites | launches (ring) | storages (ring)
 *   | storages alive (table) | streams (table)
 *
 * An entry is written with its serial 0, then its serial last: an entry whose serial is 0 is being written, or empty.
 * The ring of storages tells births and deaths in order; the table holds the births of those that live.
 *
 * Which launches were in flight is told by numbers: each counts on its stream (`number`), and the stream's row says up
 * to which number all have ended (`passed`), which its device writes as it goes. */
#ifndef BL_BASE_RECORD_H
#define BL_BASE_RECORD_H

#include <stdint.h>

#define BL_MAX_RANK     8
#define BL_MAX_OPERANDS 10

#define BL_TABLE_STREAMS 16

#ifdef BELAY_SMALL /* tiny limits, to give bugs a chance */
#define BL_RING_FAULTS   4
#define BL_RING_WINDOWS  2
#define BL_RING_LAUNCHES 4
#define BL_RING_STORAGES 8
#define BL_TABLE_ALIVE   16
#else
#define BL_RING_FAULTS   64
#define BL_RING_WINDOWS  16
#define BL_RING_LAUNCHES 1024
#define BL_RING_STORAGES 8192
#define BL_TABLE_ALIVE   4096
#endif

#define BL_RING_FULL (~UINT64_C(0) >> (64 - BL_RING_FAULTS))

/* One launch's bad elements: the lowest and how many. */
typedef struct bl_fault_record {
    uint64_t published; /* slot number + 1, stored last with release order */
    uint64_t launch;    /* serial of the launch */
    int64_t element;    /* lowest bad linear element of the operand */
    int64_t got;        /* its value; read again from the operand at the fence */
    int64_t limit;      /* the bound it had to stay below */
    uint64_t count;     /* bad elements of the launch */
    uint32_t step;      /* optimizer windows committed or refused before */
    uint32_t site;      /* index into the journal's sites */
    uint16_t code;      /* belay_code */
    uint16_t op;        /* index into the journal's op names */
    uint8_t operand;    /* which operand holds the bad element */
    uint8_t policy;     /* belay_index_policy in force */
    uint16_t axis;      /* custom: of the coordinate; there `element` is an item and `got` is what the kernel noted */
} bl_fault_record;

/* What a window's end came to, as its decision on the device publishes it. */
enum {
    BL_WINDOW_OPEN,      /* nothing yet */
    BL_WINDOW_APPLIED,   /* the step was */
    BL_WINDOW_FAULTED,   /* refused: the gate was closed */
    BL_WINDOW_OVERFLOWED /* refused, and with it the chunk of the gradients that is not finite: this + its number, and
                            the number of all where none is but the norm */
};

/* A window's words.  The window after the next takes those of one that the host has heard of. */
typedef struct bl_window_words {
    uint32_t gate; /* nonzero: the window has a fault, updates write nothing; see base/gate.h */
    uint32_t outcome;
    float scale;      /* its loss scale; 0: none */
    uint32_t refused; /* under a loss scale: overflows in a row, this one too, BL_WINDOW_SETTLED and FIXED */
} bl_window_words;

/* A step was applied under the loss scale before; the scale does not move. */
#define BL_WINDOW_SETTLED 0x80000000u
#define BL_WINDOW_FIXED   0x40000000u

/* Written by kernels, read by the host at a fence; on CUDA it lies in mapped host memory. */
typedef struct bl_fault_ring {
    uint64_t claimed; /* a bit a slot, set by the kernel that takes it, cleared by the host that has read it */
    uint64_t dropped; /* launches that got no record */
    bl_window_words window[BL_RING_WINDOWS];
    uint64_t reserved[6 - 2 * BL_RING_WINDOWS % 8];
    bl_fault_record record[BL_RING_FAULTS];
} bl_fault_ring;

typedef struct bl_operand_record {
    uint64_t address;
    uint64_t n_bytes; /* extent from address that the launch may touch */
    uint64_t storage; /* serial of the storage */
    uint32_t name;    /* offset into the string arena */
    uint8_t dtype;
    uint8_t rank;
    uint8_t is_output;
    uint8_t reserved;
    int64_t size[BL_MAX_RANK];
} bl_operand_record;

typedef struct bl_launch_record {
    uint64_t serial; /* from 1; 0 while the entry is written */
    uint64_t step;
    uint32_t epoch;
    uint32_t position;    /* batch position in the epoch */
    uint32_t micro_batch; /* in the window */
    uint32_t site;
    uint32_t layer; /* offset into the string arena */
    uint16_t op;
    uint8_t n_operands;
    uint8_t device;
    uint32_t stream; /* a row of the table of streams */
    uint32_t is_backward;
    uint64_t number; /* of its command on the stream; 0: it put none there */
    bl_operand_record operand[BL_MAX_OPERANDS];
} bl_launch_record;

typedef struct bl_storage_record {
    uint64_t serial; /* of the event, from 1; 0 while the entry is written */
    uint64_t storage;
    uint64_t address;
    uint64_t n_bytes;
    uint64_t step;
    uint32_t name;
    uint32_t site;
    uint32_t is_death;
    uint32_t reserved;
    uint64_t launch; /* serial of the last launch before */
} bl_storage_record;

/* A stream of the context: the row has its number there. */
typedef struct bl_stream_record {
    uint64_t passed;         /* its commands up to this number have ended */
    uint64_t put;            /* and up to this one were put into it, with those between launches: copies, waits */
    uint64_t opened_after;   /* launches up to this serial went to a stream that had the row before */
    uint32_t is_open;        /* 0: the row is empty, or being written */
    uint32_t is_synchronous; /* a command ends before the host goes on */
    uint32_t number;         /* the device's; 0 is its default stream */
    uint32_t name;           /* offset into the string arena */
    char device[16];         /* "sim:0" */
    uint64_t reserved;
} bl_stream_record;

typedef struct bl_journal_section {
    uint64_t offset;
    uint64_t n_bytes;
} bl_journal_section;

#define BL_JOURNAL_MAGIC   0x4C4E524A59414C42ull /* "BLAYJRNL" */
#define BL_JOURNAL_VERSION 2

typedef struct bl_journal_head {
    uint64_t magic;
    uint32_t version;
    uint32_t pid;
    int64_t started;                      /* seconds since 1970 */
    uint64_t n_launches;                  /* last serial written */
    uint64_t n_storages;                  /* births and deaths */
    uint64_t n_unlisted;                  /* births that found the table full */
    uint64_t closed;                      /* 1: the context was closed in order */
    uint32_t launch_bytes, storage_bytes; /* sizes of the records, for readers of other versions */
    uint32_t stream_bytes, reserved;
    bl_journal_section ops;     /* NUL-ended names in the order of their numbers, users' kernels last */
    bl_journal_section codes;   /* "number name\n" */
    bl_journal_section modules; /* "start-end offset path\n" of the executable mappings */
    bl_journal_section strings; /* NUL-ended; offset 0 is "" */
    bl_journal_section sites;   /* uint64_t: return addresses, or with the top bit a text; index 0 is none */
    bl_journal_section launches;
    bl_journal_section storages;
    bl_journal_section alive;
    bl_journal_section streams;
} bl_journal_head;

#ifndef __cplusplus
_Static_assert(sizeof(bl_fault_record) == 64, "the fault record has one layout everywhere");
_Static_assert(sizeof(bl_fault_ring) % 64 == 0, "the records of the ring begin where cache lines do");
_Static_assert(sizeof(bl_stream_record) == 64, "the device writes a row of its own cache line");
#endif

#endif
