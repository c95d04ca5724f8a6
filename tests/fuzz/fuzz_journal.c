/* SPDX-License-Identifier: Apache-2.0 */
/* A journal that opens can be read in every place, whatever its numbers say. */
#include "fuzz_support.h"

#include "report/journal.h"
#include "triage/journal_launch.h"

static void check_launch(const bl_journal_reader *reader, uint64_t serial)
{
    bl_launch_record launch;
    char words[64];
    if (!bl_journal_reader_launch(reader, serial, &launch))
        return;
    fuzz_require(serial == 0 || launch.serial == serial, "a launch has the serial that was asked for");
    fuzz_require(launch.n_operands <= BL_MAX_OPERANDS, "a launch has no more operands than its record");
    fuzz_require(strlen(bl_journal_reader_op(reader, launch.op)) < SIZE_MAX, "an op has a name");
    fuzz_require(strlen(bl_journal_reader_text(reader, launch.layer)) < SIZE_MAX, "a layer has a text");
    for (int k = 0; k < launch.n_operands; k++)
        fuzz_require(launch.operand[k].rank <= BL_MAX_RANK, "an operand has no more axes than its record");
    bl_journal_reader_describe_site(reader, launch.site, words, sizeof words);
    fuzz_require(strlen(words) < sizeof words, "a site's words fit");
}

static void check_streams(const bl_journal_reader *reader)
{
    bl_stream_record row;
    bl_text words = {0};
    int n = bl_journal_reader_n_streams(reader);
    fuzz_require(n >= 0 && n <= BL_TABLE_STREAMS, "there are no more streams than a table has rows");
    fuzz_require(!bl_journal_reader_stream(reader, -1, &row) && !bl_journal_reader_stream(reader, n, &row),
                 "rows lie inside of the table");
    for (int i = 0; i < n; i++)
        if (bl_journal_reader_stream(reader, i, &row))
            fuzz_require(memchr(row.device, '\0', sizeof row.device) != NULL, "a device's name ends");
    bl_journal_streams_tell(reader, &words);
    for (const char *at = bl_text_get(&words); *at != '\0'; at++)
        fuzz_require(*at == '\n' || (unsigned char)*at >= ' ', "no byte of a journal reaches a terminal as a command");
    bl_text_fini(&words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bl_error error = {.code = BELAY_OK};
    bl_journal_reader *reader;
    belay_code code = bl_journal_reader_open(fuzz_path(data, size), &reader, &error);
    fuzz_require(code == error.code && (code == BELAY_OK) == (reader != NULL), "code, error and reader agree");
    if (code != BELAY_OK)
        return 0;
    const bl_journal_head *head = bl_journal_reader_head(reader);
    for (uint64_t serial = 0; serial < 8; serial++) {
        bl_storage_record storage;
        check_launch(reader, serial);
        check_launch(reader, head->n_launches - serial);
        bl_journal_reader_storage(reader, serial, &storage);
        bl_journal_reader_storage(reader, head->n_storages - serial, &storage);
    }
    check_streams(reader);
    int64_t n = bl_journal_reader_n_places(reader);
    fuzz_require(n >= 0 && (uint64_t)n <= size / sizeof(bl_storage_record), "places lie inside of the file");
    for (int64_t place = -1; place <= n; place++) {
        bl_storage_record storage;
        if (bl_journal_reader_alive(reader, place, &storage))
            fuzz_require(place >= 0 && place < n && storage.serial != 0, "what lives has a serial");
    }
    bl_journal_reader_close(reader);
    return 0;
}
