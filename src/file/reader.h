/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of foreign bytes whose memory is bounded before the first byte is read.  Regular files only: a folder, pipe
 * or device is refused by name (file.open), so that no read can block or never end. Codes: file.open, file.read,
 * file.limit, mem.exhausted. */
#ifndef BL_FILE_READER_H
#define BL_FILE_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "file/path.h"

/* Opens a regular file to read and tells its size; *fd is the caller's to close. */
BL_MUST_USE belay_code bl_file_open_regular(const char *path, int *fd, int64_t *n_bytes, bl_error *error);

/* Exactly n_bytes at `offset`; a file that ends before is file.read. */
BL_MUST_USE belay_code bl_file_read_at(int fd, const char *path, int64_t offset, void *into, int64_t n_bytes,
                                       bl_error *error);

/* The whole file, at most `limit` bytes (else file.limit).  *bytes is on the heap (bl_free) and ended by a NUL that
 * *n_bytes does not count. */
BL_MUST_USE belay_code bl_file_read_whole(const char *path, int64_t limit, char **bytes, int64_t *n_bytes,
                                          bl_error *error);

/* ---- a window that slides over a file ----------------------------------------------------------------------- */

typedef struct bl_file_stream bl_file_stream;

/* From byte `offset` on.  The window never holds more than `limit` bytes and starts small. */
BL_MUST_USE belay_code bl_file_stream_open(const char *path, int64_t limit, bl_file_stream **out, bl_error *error);
void bl_file_stream_close(bl_file_stream *stream);

/* The next read starts at byte `offset` of the file. */
void bl_file_stream_seek(bl_file_stream *stream, int64_t offset);

/* What is in the window and not yet taken.  The bytes may be changed by the caller; they move at the next call of
 * bl_file_stream_more and die at _seek and _close. */
char *bl_file_stream_bytes(const bl_file_stream *stream, int64_t *n_bytes);

/* Reads at least one byte more behind those; *ended: the file has no more; *is_full: the window has reached its limit.
 */
BL_MUST_USE belay_code bl_file_stream_more(bl_file_stream *stream, bool *ended, bool *is_full, bl_error *error);

/* Takes n bytes off the front, at most those in the window. */
void bl_file_stream_take(bl_file_stream *stream, int64_t n_bytes);

/* Offset in the file of the first byte not yet taken. */
int64_t bl_file_stream_offset(const bl_file_stream *stream);

const char *bl_file_stream_path(const bl_file_stream *stream);

/* The next line without its end ("\n" or "\r\n"), valid until the next call on the stream; *line is NULL at the end of
 * the file.  A line that does not fit the window's limit is file.limit, naming `number`, the line's number. */
BL_MUST_USE belay_code bl_file_stream_line(bl_file_stream *stream, int64_t number, const char **line, int64_t *n_bytes,
                                           bl_error *error);

#endif
