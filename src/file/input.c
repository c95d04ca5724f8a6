/* SPDX-License-Identifier: Apache-2.0 */
/* Three layers: bytes of the descriptor, an unpacker, and bl_input_read, which asks until the caller's room is full. */
#include "file/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/path.h"

/* The largest window that a Zstandard frame may ask for is that of the zstd program itself: 128 MiB. */
enum { sniffed = 16, largest_window_log = 27, smallest_zstd_header = 5, zstd_block_header = 3 };
#ifdef BELAY_SMALL
enum { packed_room = 32 };
#else
enum { packed_room = 256 * 1024 };
#endif

struct bl_input {
    char *path;
    int fd;
    bl_input_form form;
    int64_t n_taken, n_bytes, changed;
    bool has_ended;   /* the descriptor has no more */
    bool is_finished; /* nothing more will be handed over */
    char damage[256];

    /* Packed bytes that were read and not yet unpacked; of a plain file those that were looked at to tell its form. */
    char *packed;
    int64_t begin, end;

    z_stream gzip;
    bool has_gzip;
    ZSTD_DStream *zstd;
    int64_t zstd_wants;   /* bytes of input that its next call should get */
    bool has_zstd_output; /* it may hold output that had no room */
    bool is_in_frame;     /* between the first and the last byte of a member or frame */
    int64_t n_frames;

    /* UTF-16: which byte of a unit comes first, half a unit, half a pair, and bytes that had no room. */
    bool is_big_endian, has_byte;
    unsigned char byte;
    uint32_t high;
    unsigned char spare[8];
    int n_spare;

    char peeked[BL_INPUT_PEEK]; /* bytes of the stream that were shown and not yet handed over */
    int64_t n_peeked, n_returned;
};

/* ---- the descriptor ------------------------------------------------------------------------------------------ */

static const char no_memory_text[] = "could not be unpacked to its end for want of memory";

static void damage(bl_input *input, const char *text)
{
    if (input->damage[0] == '\0')
        snprintf(input->damage, sizeof input->damage, "%s", text);
}

/* At least one byte, 0 at the end and after an error, which is damage. */
static int64_t read_some(bl_input *input, char *into, int64_t capacity)
{
    while (!input->has_ended) {
        ssize_t n = read(input->fd, into, (size_t)bl_min_i64(capacity, 1 << 30));
        if (n > 0) {
            input->n_taken += n;
            return n;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            struct pollfd ready = {.fd = input->fd, .events = POLLIN};
            (void)poll(&ready, 1, -1);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        input->has_ended = true;
        if (n < 0) {
            char reason[128], text[sizeof input->damage];
            bl_error_errno(errno, reason);
            snprintf(text, sizeof text, "cannot be read behind byte %lld: %s", (long long)input->n_taken, reason);
            damage(input, text);
        }
    }
    return 0;
}

/* Whether there is a packed byte. */
static bool has_packed(bl_input *input)
{
    if (input->begin == input->end) {
        input->begin = 0;
        input->end = read_some(input, input->packed, packed_room);
    }
    return input->begin < input->end;
}

static int64_t take_packed(bl_input *input, char *into, int64_t capacity)
{
    int64_t n = bl_min_i64(capacity, input->end - input->begin);
    if (n > 0)
        memcpy(into, input->packed + input->begin, (size_t)n);
    input->begin += n;
    return n;
}

static int64_t read_plain(bl_input *input, char *into, int64_t capacity)
{
    if (input->begin < input->end)
        return take_packed(input, into, capacity);
    return read_some(input, into, capacity);
}

/* ---- gzip and Zstandard -------------------------------------------------------------------------------------- */

static void *zlib_alloc(void *state, unsigned count, unsigned size)
{
    (void)state;
    return bl_alloc(count, size);
}

static void zlib_free(void *state, void *block)
{
    (void)state;
    bl_free(block);
}

static void finish(bl_input *input, const char *text)
{
    input->is_finished = true;
    if (text != NULL)
        damage(input, text);
}

/* What a packed stream is called. */
static const char *kind_of(const bl_input *input) { return input->form == BL_INPUT_GZIP ? "gzip" : "Zstandard"; }

static void finish_broken(bl_input *input, const char *reason)
{
    char text[sizeof input->damage];
    int64_t offset = input->n_taken - (input->end - input->begin);
    snprintf(text, sizeof text, "is damaged near byte %lld of its %s stream (%s); what stands before was read",
             (long long)offset, kind_of(input), reason);
    finish(input, text);
}

static void finish_cut(bl_input *input)
{
    char text[sizeof input->damage];
    snprintf(text, sizeof text, "ends within its %s stream; what stands before that was read", kind_of(input));
    finish(input, text);
}

/* Between two frames: zeros are padding, and what begins neither way is not ours. */
static bool is_frame_next(bl_input *input)
{
    while (input->n_frames > 0 && has_packed(input) && input->packed[input->begin] == '\0')
        input->begin++;
    if (!has_packed(input)) {
        finish(input, NULL);
        return false;
    }
    unsigned char first = (unsigned char)input->packed[input->begin];
    bool begins = input->form == BL_INPUT_GZIP ? first == 0x1f : first == 0x28 || (first >= 0x50 && first <= 0x5f);
    if (begins)
        return true;
    char text[sizeof input->damage];
    snprintf(text, sizeof text, "goes on behind its %s stream with bytes of another kind, which were not read",
             kind_of(input));
    finish(input, text);
    return false;
}

static int64_t unpack_gzip(bl_input *input, char *into, int64_t capacity)
{
    z_stream *z = &input->gzip;
    if (!input->is_in_frame && !is_frame_next(input))
        return 0;
    bool has_more = has_packed(input); /* without more input there may still be output that had no room */
    input->is_in_frame = true;
    z->next_in = (unsigned char *)input->packed + input->begin;
    z->avail_in = (unsigned)(input->end - input->begin);
    z->next_out = (unsigned char *)into;
    z->avail_out = (unsigned)bl_min_i64(capacity, 1 << 30);
    int64_t room = z->avail_out;
    int result = inflate(z, Z_NO_FLUSH);
    input->begin = input->end - z->avail_in;
    int64_t n = room - z->avail_out;
    if (result == Z_STREAM_END) {
        input->is_in_frame = false;
        input->n_frames++;
        (void)inflateReset(z);
    } else if (result == Z_MEM_ERROR) {
        finish(input, no_memory_text);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
        finish_broken(input, z->msg != NULL ? z->msg : "it needs a dictionary");
    } else if (!has_more && n == 0) {
        finish_cut(input);
    }
    return n;
}

static void finish_zstd_error(bl_input *input, size_t result)
{
    ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_memory_allocation)
        finish(input, no_memory_text);
    else if (code == ZSTD_error_frameParameter_windowTooLarge)
        finish(input,
               "asks for a window of more than 128 MiB and was not read on; unpack it first (zstd -d --long=31)");
    else
        finish_broken(input, ZSTD_getErrorName(result));
}

/* A call that fails takes back what it had unpacked.  So each call gets no more than one block: what the library asks
 * for, without the header of the block behind it; and nothing while there is output that had no room. */
static int64_t unpack_zstd(bl_input *input, char *into, int64_t capacity)
{
    if (!input->is_in_frame && !is_frame_next(input))
        return 0;
    bool has_more = has_packed(input);
    int64_t wanted = input->is_in_frame ? input->zstd_wants : smallest_zstd_header;
    int64_t n_in = input->has_zstd_output ? 0 : bl_min_i64(wanted, input->end - input->begin);
    ZSTD_inBuffer in = {input->packed + input->begin, (size_t)n_in, 0};
    ZSTD_outBuffer out = {into, (size_t)capacity, 0};
    size_t result = ZSTD_decompressStream(input->zstd, &out, &in);
    input->begin += (int64_t)in.pos;
    input->has_zstd_output = out.pos == out.size;
    input->is_in_frame = result != 0;
    input->n_frames += result == 0;
    if (ZSTD_isError(result)) {
        finish_zstd_error(input, result);
        return 0;
    }
    input->zstd_wants = (int64_t)result > zstd_block_header ? (int64_t)result - zstd_block_header : (int64_t)result;
    if (!has_more && out.pos == 0 && result != 0)
        finish_cut(input);
    return (int64_t)out.pos;
}

/* ---- UTF-16 -------------------------------------------------------------------------------------------------- */

static int put_utf8(uint32_t point, unsigned char *out)
{
    if (point < 0x80) {
        out[0] = (unsigned char)point;
        return 1;
    }
    int n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char firsts[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, point >>= 6)
        out[i] = (unsigned char)(0x80 | (point & 0x3f));
    out[0] = (unsigned char)(firsts[n] | point);
    return n;
}

static void spare(bl_input *input, uint32_t point) { input->n_spare += put_utf8(point, input->spare + input->n_spare); }

/* One unit: a character, the first half of one (nothing yet), or a half that lacks the other (U+FFFD). */
static void convert_unit(bl_input *input, uint32_t unit)
{
    bool is_low = unit >= 0xdc00 && unit <= 0xdfff, is_high = unit >= 0xd800 && unit <= 0xdbff;
    uint32_t high = input->high;
    input->high = is_high ? unit : 0;
    if (high != 0 && is_low) {
        spare(input, 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00));
        return;
    }
    if (high != 0)
        spare(input, 0xfffd);
    if (!is_high)
        spare(input, is_low ? 0xfffd : unit);
}

static int64_t unpack_utf16(bl_input *input, char *into, int64_t capacity)
{
    int64_t n = 0;
    while (n < capacity) {
        if (input->n_spare > 0) {
            into[n++] = (char)input->spare[0];
            memmove(input->spare, input->spare + 1, (size_t)--input->n_spare);
            continue;
        }
        if (!has_packed(input)) {
            finish(input, input->has_byte || input->high != 0 ? "ends within a UTF-16 character" : NULL);
            break;
        }
        unsigned char byte = (unsigned char)input->packed[input->begin++];
        if (input->has_byte)
            convert_unit(input,
                         input->is_big_endian ? (uint32_t)input->byte << 8 | byte : (uint32_t)byte << 8 | input->byte);
        input->byte = byte;
        input->has_byte = !input->has_byte;
    }
    return n;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

static const char *name_of(const char *path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

static belay_code cannot_open(const char *path, int number, bl_error *error)
{
    char reason[128];
    return bl_error_set(error, BELAY_FILE_OPEN, "cannot open '%s': %s", name_of(path), bl_error_errno(number, reason));
}

static belay_code refuse_kind(const char *path, mode_t mode, bl_error *error)
{
    return bl_error_set(error, BELAY_FILE_OPEN, "cannot open '%s': it is %s", name_of(path),
                        bl_file_kind_describe(mode));
}

/* Without O_NONBLOCK the open of a device might wait; the open of a pipe must wait for its writer. */
static int open_path(const char *path)
{
    struct stat status;
    bool is_pipe = stat(path, &status) == 0 && S_ISFIFO(status.st_mode);
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (is_pipe ? 0 : O_NONBLOCK));
    while (fd < 0 && errno == EINTR);
    return fd;
}

static belay_code open_descriptor(bl_input *input, bl_error *error)
{
    bool is_standard = strcmp(input->path, "-") == 0 || strcmp(input->path, "/dev/stdin") == 0;
    struct stat status;
    input->fd = is_standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open_path(input->path);
    if (input->fd < 0 && errno == ENXIO && stat(input->path, &status) == 0)
        return refuse_kind(input->path, status.st_mode, error);
    if (input->fd < 0 || fstat(input->fd, &status) != 0)
        return cannot_open(input->path, errno, error);
    bool is_stream = S_ISFIFO(status.st_mode) || (is_standard && (S_ISCHR(status.st_mode) || S_ISSOCK(status.st_mode)));
    if (!S_ISREG(status.st_mode) && !is_stream)
        return refuse_kind(input->path, status.st_mode, error);
    input->n_bytes = S_ISREG(status.st_mode) ? (int64_t)status.st_size : -1;
    if (S_ISREG(status.st_mode)) {
        input->changed = (int64_t)status.st_mtim.tv_sec * 1000000 + status.st_mtim.tv_nsec / 1000;
        (void)posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    return BELAY_OK;
}

static const struct magic {
    int offset, n;
    const char *bytes, *kind, *command; /* command: how to make text of it */
} refused[] = {
    {0, 6, "\xfd\x37\x7a\x58\x5a\x00", "packed with xz", "xz -dc"},
    {4, 6, "1AY&SY", "packed with bzip2", "bzip2 -dc"},
    {0, 4, "\x04\x22\x4d\x18", "packed with lz4", "lz4 -dc"},
    {0, 4, "PK\x03\x04", "a zip archive", "unzip -p"},
    {0, 6, "7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x -so"},
    {0, 8, "LPKSHHRH", "a binary journal of systemd", "journalctl -k -o short-precise --file"},
};

static bool has_magic_at(const bl_input *input, int offset, const char *bytes, int n)
{
    return input->end - input->begin >= offset + n &&
           memcmp(input->packed + input->begin + offset, bytes, (size_t)n) == 0;
}

static bool has_magic(const bl_input *input, const char *bytes, int n) { return has_magic_at(input, 0, bytes, n); }

static belay_code refuse_magic(const bl_input *input, bl_error *error)
{
    for (int i = 0; i < BL_COUNT(refused); i++) {
        if (!has_magic_at(input, refused[i].offset, refused[i].bytes, refused[i].n))
            continue;
        bl_error_set(error, BELAY_FILE_FORMAT, "cannot read '%s': it is %s", name_of(input->path), refused[i].kind);
        bl_error_advise(error, "Make text of it first: %s FILE | belay explain -", refused[i].command);
        return BELAY_FILE_FORMAT;
    }
    return BELAY_OK;
}

/* Zstandard frames begin with one number, skippable frames in front of them with one of sixteen. */
static bool has_zstd_magic(const bl_input *input)
{
    return has_magic(input, "\x28\xb5\x2f\xfd", 4) ||
           (input->end - input->begin >= 4 && (input->packed[input->begin] & 0xf0) == 0x50 &&
            memcmp(input->packed + input->begin + 1, "\x2a\x4d\x18", 3) == 0);
}

static belay_code begin_unpacking(bl_input *input, bl_error *error)
{
    bool works = true;
    if (has_magic(input, "\x1f\x8b\x08", 3)) {
        input->form = BL_INPUT_GZIP;
        input->gzip = (z_stream){.zalloc = zlib_alloc, .zfree = zlib_free};
        works = input->has_gzip = inflateInit2(&input->gzip, 16 + MAX_WBITS) == Z_OK;
    } else if (has_zstd_magic(input)) {
        input->form = BL_INPUT_ZSTD;
        input->zstd = ZSTD_createDStream();
        works = input->zstd != NULL &&
                !ZSTD_isError(ZSTD_DCtx_setParameter(input->zstd, ZSTD_d_windowLogMax, largest_window_log));
    } else if (has_magic(input, "\xff\xfe", 2) || has_magic(input, "\xfe\xff", 2)) {
        input->form = BL_INPUT_UTF16;
        input->is_big_endian = input->packed[input->begin] == '\xfe';
        input->begin += 2;
    } else if (has_magic(input, "\xef\xbb\xbf", 3)) {
        input->begin += 3;
    }
    return works ? BELAY_OK : bl_file_no_memory(error, "unpack", name_of(input->path));
}

static belay_code begin(bl_input *input, bl_error *error)
{
    TRY(open_descriptor(input, error));
    input->packed = bl_alloc(packed_room, 1);
    if (input->packed == NULL)
        return bl_file_no_memory(error, "read", name_of(input->path));
    for (int64_t n = 1; n > 0 && input->end < sniffed; input->end += n)
        n = read_some(input, input->packed + input->end, sniffed - input->end);
    TRY(refuse_magic(input, error));
    return begin_unpacking(input, error);
}

belay_code bl_input_open(const char *path, bl_input **out, bl_error *error)
{
    *out = NULL;
    bl_input *input = bl_alloc(1, sizeof *input);
    if (input == NULL)
        return bl_file_no_memory(error, "read", name_of(path));
    input->fd = -1;
    input->path = bl_strdup(path);
    belay_code code = input->path != NULL ? begin(input, error) : bl_file_no_memory(error, "read", name_of(path));
    if (code != BELAY_OK)
        bl_input_close(input);
    else
        *out = input;
    return code;
}

void bl_input_close(bl_input *input)
{
    if (input == NULL)
        return;
    if (input->has_gzip)
        (void)inflateEnd(&input->gzip);
    (void)ZSTD_freeDStream(input->zstd);
    if (input->fd >= 0)
        close(input->fd);
    bl_free(input->packed);
    bl_free(input->path);
    bl_free(input);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static int64_t read_stream(bl_input *input, char *into, int64_t capacity)
{
    int64_t n = 0;
    while (n < capacity && !input->is_finished) {
        switch (input->form) {
        case BL_INPUT_GZIP:
            n += unpack_gzip(input, into + n, capacity - n);
            break;
        case BL_INPUT_ZSTD:
            n += unpack_zstd(input, into + n, capacity - n);
            break;
        case BL_INPUT_UTF16:
            n += unpack_utf16(input, into + n, capacity - n);
            break;
        case BL_INPUT_PLAIN: {
            int64_t got = read_plain(input, into + n, capacity - n);
            input->is_finished = got == 0;
            n += got;
        }
        }
    }
    return n;
}

int64_t bl_input_peek(bl_input *input, char *into, int64_t capacity)
{
    if (input->n_peeked == 0)
        input->n_peeked = read_stream(input, input->peeked, BL_INPUT_PEEK);
    int64_t n = bl_min_i64(capacity, input->n_peeked);
    memcpy(into, input->peeked, (size_t)n);
    return n;
}

int64_t bl_input_read(bl_input *input, char *into, int64_t capacity)
{
    int64_t n = bl_min_i64(capacity, input->n_peeked - input->n_returned);
    memcpy(into, input->peeked + input->n_returned, (size_t)n);
    input->n_returned += n;
    return n + (n < capacity ? read_stream(input, into + n, capacity - n) : 0);
}

const char *bl_input_damage(const bl_input *input) { return input->damage[0] != '\0' ? input->damage : NULL; }
bl_input_form bl_input_form_get(const bl_input *input) { return input->form; }
const char *bl_input_path(const bl_input *input) { return input->path; }
int64_t bl_input_n_taken(const bl_input *input) { return input->n_taken - (input->end - input->begin); }
int64_t bl_input_n_bytes(const bl_input *input) { return input->n_bytes; }
int64_t bl_input_changed(const bl_input *input) { return input->changed; }
