/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign text as a stream of bytes: from a regular file, a named pipe or standard input, plain or compressed.  What it
 * is, gzip or Zstandard, is seen from its first bytes and never from its name; UTF-16 with a byte order mark becomes
 * UTF-8.  Memory is bounded whatever the stream says about itself, and nothing is ever written or unpacked to disk.
 *
 * Opening fails for what cannot be opened.  After that nothing fails: a stream that is cut short or damaged gives all
 * that could be read, then ends, and tells why by bl_input_damage. */
#ifndef BL_FILE_INPUT_H
#define BL_FILE_INPUT_H

#include <stdint.h>

#include "base/error.h"

typedef struct bl_input bl_input;

typedef enum bl_input_form { BL_INPUT_PLAIN, BL_INPUT_GZIP, BL_INPUT_ZSTD, BL_INPUT_UTF16 } bl_input_form;

/* "-" is standard input, which may also be a terminal or a socket.  A folder or a device is refused by name
 * (file.open), as is what is packed in a way that is not read here: xz, bzip2, zip, lz4 (file.format).  A named pipe is
 * waited for until it has a writer.  Codes: file.open, file.format, mem.exhausted. */
BL_MUST_USE belay_code bl_input_open(const char *path, bl_input **out, bl_error *error);
void bl_input_close(bl_input *input);

/* Fills `into` with the next bytes, unpacked: exactly `capacity` of them unless the stream ends before.  0 at the end. */
BL_MUST_USE int64_t bl_input_read(bl_input *input, char *into, int64_t capacity);

/* NULL while all is well; else, once the end was reached, how it came too early, as the end of a sentence that begins
 * with the file's name: "ends within its gzip stream; what stands before that was read". */
const char *bl_input_damage(const bl_input *input);

/* Copies the first bytes of the stream, at most BL_INPUT_PEEK, and leaves them to be read; before the first read only.
 * How many there are. */
enum { BL_INPUT_PEEK = 16 };
BL_MUST_USE int64_t bl_input_peek(bl_input *input, char *into, int64_t capacity);

bl_input_form bl_input_form_get(const bl_input *input);
/* As given to open; standard input is "-". */
const char *bl_input_path(const bl_input *input);
/* Bytes taken from the file so far, packed as they are, and its size; the size is -1 where none can be told. */
int64_t bl_input_n_taken(const bl_input *input);
int64_t bl_input_n_bytes(const bl_input *input);
/* When the file was last changed, microseconds since 1970 UTC; 0 where that cannot be told. */
int64_t bl_input_changed(const bl_input *input);

#endif
