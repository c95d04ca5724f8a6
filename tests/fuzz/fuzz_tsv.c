/* SPDX-License-Identifier: Apache-2.0 */
#include "table_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_table(BL_TABLE_TSV, data, size); }
