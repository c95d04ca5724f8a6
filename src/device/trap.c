/* SPDX-License-Identifier: Apache-2.0 */
/* The handler calls nothing but the system, and reads and writes atomics; it takes no lock.
 *
 * A page is made elsewhere and moved over the touched one at once, so that no thread sees it half made.  Of each range
 * the first and the last poisoned page are kept, and all between them is made inaccessible again: their number is not
 * bounded.  The handler lays the page, then widens the span, then notes; bl_trap_take reads the note, then the span,
 * then takes the pages away: a touch that comes in between is noted once more, never lost. */
#define _GNU_SOURCE /* mremap, process_vm_readv, REG_ERR */
#include "device/trap.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

enum { N_SIGNALS = 2, N_PLACES = 16 };
enum { NOTE_WRITE = 1, NOTE_WRITE_KNOWN = 2, NOTE_SET = 4, NOTE_SHIFT = 3 };

typedef struct guard {
    struct guard *outer;
    sigjmp_buf back;
    bl_trap_access access;
    sigset_t mask; /* when it was touched */
} guard;

/* `note` packs the first touch: address and flags.  `span` packs the first poisoned page and, above it, the last plus
 * one, both counted from the begin; 0: none. */
typedef struct range {
    _Atomic uintptr_t begin;
    _Atomic size_t n_bytes;
    _Atomic uint64_t note, count, span;
} range;

/* Who else wants a signal: the first handler that was met, and the one that was met last.  A place is written again
 * only after many changes, so that a handler that reads it meanwhile is safe. */
typedef struct chain {
    struct sigaction place[N_PLACES];
    int n_placed;
    _Atomic(const struct sigaction *) first, latest;
    _Atomic bool is_spent; /* an SA_RESETHAND one that had its turn */
} chain;

static const int signals[N_SIGNALS] = {SIGSEGV, SIGBUS};
static chain chains[N_SIGNALS];
static range ranges[BL_TRAP_RANGES];
int bl_trap_n_noted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* free in a forked child, whoever held it */
static pthread_once_t watched = PTHREAD_ONCE_INIT;
static _Atomic uintptr_t page_bytes;

/* Of the initial kind: a handler may not allocate it at first use. */
#define OF_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
OF_THREAD guard *volatile innermost;
OF_THREAD volatile uintptr_t laid_for_reading; /* the last page that this thread was laid */
OF_THREAD const void *volatile passed_on;      /* the siginfo that the handler before is looking at */

/* ---- the handler ----------------------------------------------------------------------------------------------------- */

static bool is_write(const ucontext_t *machine, bool *is_known)
{
#if defined(__x86_64__)
    *is_known = machine->uc_mcontext.gregs[REG_TRAPNO] == 14; /* a page fault: its error code says it */
    return *is_known && (machine->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)machine;
    *is_known = false;
    return false;
#endif
}

static range *range_of(uintptr_t address)
{
    for (int i = 0; i < BL_TRAP_RANGES; i++) {
        uintptr_t begin = atomic_load(&ranges[i].begin);
        if (begin != 0 && address - begin < atomic_load(&ranges[i].n_bytes))
            return &ranges[i];
    }
    return NULL;
}

/* No race detector looks: the page is nobody else's yet. */
__attribute__((no_sanitize_thread)) static void fill_with_nan(volatile uint64_t *page)
{
    for (size_t i = 0; i < page_bytes / sizeof *page; i++)
        page[i] = UINT64_C(0x7fff7fff7fff7fff);
}

/* System calls of our own: their wrappers may be somebody's who is not safe here. */
static bool lay_page(uintptr_t at, bool is_writable)
{
    long page = syscall(SYS_mmap, NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    if (page == -1)
        return false;
    fill_with_nan((volatile uint64_t *)page);
    if ((is_writable || syscall(SYS_mprotect, page, page_bytes, PROT_READ) == 0) &&
        syscall(SYS_mremap, page, page_bytes, page_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != -1)
        return true;
    (void)syscall(SYS_munmap, page, page_bytes);
    return false;
}

static void widen_span(range *r, uint64_t page)
{
    uint64_t old = atomic_load(&r->span), wider;
    do {
        uint64_t first = old & UINT32_MAX, end = old >> 32;
        first = old == 0 || page < first ? page : first;
        end = page + 1 > end ? page + 1 : end;
        wider = first | end << 32;
    } while (!atomic_compare_exchange_weak(&r->span, &old, wider));
}

/* A touch by the host; false when no page could be laid. */
static bool touch(range *r, uintptr_t address, const ucontext_t *machine)
{
    bool is_known, writes = is_write(machine, &is_known);
    uintptr_t page = address - address % page_bytes;
    /* The same page twice: the machine has not told of a write. */
    bool is_writable = writes || !is_known || laid_for_reading == page;
    if (!lay_page(page, is_writable))
        return false;
    laid_for_reading = is_writable ? 0 : page;
    widen_span(r, (page - atomic_load(&r->begin)) / page_bytes);
    atomic_fetch_add(&r->count, 1);
    uint64_t none = 0, flags = NOTE_SET | (writes ? NOTE_WRITE : 0u) | (is_known ? NOTE_WRITE_KNOWN : 0u);
    if (atomic_compare_exchange_strong(&r->note, &none, (uint64_t)address << NOTE_SHIFT | flags))
        __atomic_fetch_add(&bl_trap_n_noted, 1, __ATOMIC_SEQ_CST);
    return true;
}

/* The default effect: at once for a signal that was sent, else when the access is made again. */
static void take_default(int number, bool is_sent)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigaction(number, &usual, NULL);
    if (is_sent)
        (void)raise(number);
}

/* Where the handler before has called this one, it wants the one before itself. */
static void pass_on(chain *c, int number, siginfo_t *info, void *machine)
{
    const bool is_sent = info->si_code <= 0, is_back = passed_on == info;
    const struct sigaction *other = atomic_load(is_back ? &c->first : &c->latest);
    if (other == NULL || other->sa_handler == SIG_DFL || (other->sa_handler == SIG_IGN && !is_sent) ||
        ((other->sa_flags & (int)SA_RESETHAND) != 0 && atomic_exchange(&c->is_spent, true))) {
        take_default(number, is_sent);
        return;
    }
    if (other->sa_handler == SIG_IGN)
        return;
    if (other->sa_flags & SA_NODEFER) {
        sigset_t own;
        sigemptyset(&own);
        sigaddset(&own, number);
        (void)pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    }
    passed_on = info;
    if (other->sa_flags & SA_SIGINFO)
        other->sa_sigaction(number, info, machine);
    else
        other->sa_handler(number);
    passed_on = NULL;
}

static void end_body(guard *g, uintptr_t address, const ucontext_t *machine)
{
    bool is_known, writes = is_write(machine, &is_known);
    g->access = (bl_trap_access){.address = address, .is_write = writes, .is_write_known = is_known};
    g->mask = machine->uc_sigmask;
    siglongjmp(g->back, 1);
}

static void on_signal(int number, siginfo_t *info, void *machine)
{
    const int before = errno;
    if (info->si_code > 0) {
        uintptr_t address = (uintptr_t)info->si_addr;
        guard *g = innermost;
        if (g != NULL)
            end_body(g, address, machine);
        range *r = range_of(address);
        if (r != NULL && touch(r, address, machine)) {
            errno = before;
            return;
        }
    }
    pass_on(&chains[number == signals[0] ? 0 : 1], number, info, machine);
    errno = before;
}

/* ---- installing ------------------------------------------------------------------------------------------------------ */

static bool is_ours(const struct sigaction *now)
{
    return (now->sa_flags & SA_SIGINFO) != 0 && now->sa_sigaction == on_signal;
}

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
    return a != NULL && a->sa_handler == b->sa_handler && a->sa_flags == b->sa_flags;
}

/* What was there is kept before ours is in its place. */
static void install_one(int i)
{
    chain *c = &chains[i];
    struct sigaction now;
    if (sigaction(signals[i], NULL, &now) != 0 || is_ours(&now))
        return;
    if (!is_same(atomic_load(&c->latest), &now)) {
        /* The first place is the first handler's for good. */
        int place = c->n_placed == 0 ? 0 : 1 + (c->n_placed - 1) % (N_PLACES - 1);
        c->place[place] = now;
        c->n_placed++;
        atomic_store(&c->latest, &c->place[place]);
        if (place == 0)
            atomic_store(&c->first, &c->place[0]);
    }
    atomic_store(&c->is_spent, false);
    struct sigaction ours = {.sa_sigaction = on_signal, .sa_mask = now.sa_mask};
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (now.sa_flags & SA_RESTART);
    (void)sigaction(signals[i], &ours, NULL);
}

static void free_in_child(void) { (void)pthread_mutex_init(&lock, NULL); }

static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, free_in_child); }

/* Others do put theirs over ours, for both signals as a rule: one is looked at, since a look is a system call. */
static void install(void)
{
    struct sigaction now;
    if (sigaction(signals[0], NULL, &now) == 0 && is_ours(&now))
        return;
    (void)pthread_once(&watched, watch_forks);
    (void)pthread_mutex_lock(&lock);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < N_SIGNALS; i++)
        install_one(i);
    (void)pthread_mutex_unlock(&lock);
}

/* ---- bodies ---------------------------------------------------------------------------------------------------------- */

/* An access while its signal is blocked would end the process, whatever handlers there are: a body is never run so. */
static bool open_mask(sigset_t *before)
{
    sigset_t own;
    sigemptyset(&own);
    for (int i = 0; i < N_SIGNALS; i++)
        sigaddset(&own, signals[i]);
    return pthread_sigmask(SIG_UNBLOCK, &own, before) == 0 &&
           (sigismember(before, SIGSEGV) == 1 || sigismember(before, SIGBUS) == 1);
}

bool bl_trap_run(void (*body)(void *state), void *state, bl_trap_access *out)
{
    sigset_t before;
    bool is_ended = false;
    guard g = {.outer = innermost};
    if (g.outer == NULL)
        install();
    const bool was_closed = g.outer == NULL && open_mask(&before);
    if (sigsetjmp(g.back, 0) == 0) {
        innermost = &g;
        body(state);
    } else {
        (void)pthread_sigmask(SIG_SETMASK, &g.mask, NULL);
        *out = g.access;
        is_ended = true;
    }
    innermost = g.outer;
    if (was_closed)
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !is_ended;
}

bool bl_trap_is_readable(uint64_t address)
{
    char byte;
    struct iovec to = {&byte, 1}, from = {(void *)(uintptr_t)address, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/* ---- ranges ---------------------------------------------------------------------------------------------------------- */

static range *range_at(const void *begin)
{
    for (int i = 0; i < BL_TRAP_RANGES; i++)
        if (atomic_load(&ranges[i].begin) == (uintptr_t)begin)
            return &ranges[i];
    return NULL;
}

bool bl_trap_range_add(void *begin, size_t n_bytes)
{
    install();
    if (begin == NULL || n_bytes == 0 || (uintptr_t)begin % page_bytes != 0 || n_bytes % page_bytes != 0 ||
        n_bytes / page_bytes >= UINT32_MAX)
        return false;
    (void)pthread_mutex_lock(&lock);
    range *r = range_at(NULL);
    if (r != NULL) {
        atomic_store(&r->count, 0);
        atomic_store(&r->span, 0);
        atomic_store(&r->n_bytes, n_bytes);
        atomic_store(&r->begin, (uintptr_t)begin);
    }
    (void)pthread_mutex_unlock(&lock);
    return r != NULL;
}

static bool take_from(range *r, bl_trap_touch *out)
{
    uint64_t note = atomic_exchange(&r->note, 0);
    if (note == 0)
        return false;
    __atomic_fetch_sub(&bl_trap_n_noted, 1, __ATOMIC_SEQ_CST);
    const uintptr_t begin = atomic_load(&r->begin);
    *out = (bl_trap_touch){.range = (const void *)begin,
                           .address = note >> NOTE_SHIFT,
                           .count = atomic_exchange(&r->count, 0),
                           .is_write = (note & NOTE_WRITE) != 0,
                           .is_write_known = (note & NOTE_WRITE_KNOWN) != 0};
    uint64_t span = atomic_exchange(&r->span, 0), first = span & UINT32_MAX, end = span >> 32;
    if (end > first)
        (void)mmap((void *)(begin + first * page_bytes), (end - first) * page_bytes, PROT_NONE,
                   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return true;
}

void bl_trap_range_remove(const void *begin)
{
    (void)pthread_mutex_lock(&lock);
    range *r = begin != NULL ? range_at(begin) : NULL;
    if (r != NULL) {
        bl_trap_touch untold;
        (void)take_from(r, &untold);
        atomic_store(&r->begin, 0);
        atomic_store(&r->n_bytes, 0);
    }
    (void)pthread_mutex_unlock(&lock);
}

bool bl_trap_take(const void *range_begin, bl_trap_touch *out)
{
    if (BL_LIKELY(!bl_trap_has_touches()))
        return false;
    (void)pthread_mutex_lock(&lock);
    bool is_taken = false;
    for (int i = 0; i < BL_TRAP_RANGES && !is_taken; i++) {
        uintptr_t begin = atomic_load(&ranges[i].begin);
        if (begin != 0 && (range_begin == NULL || begin == (uintptr_t)range_begin))
            is_taken = take_from(&ranges[i], out);
    }
    (void)pthread_mutex_unlock(&lock);
    return is_taken;
}
