/* SPDX-License-Identifier: Apache-2.0 */
/* A program outside of the tree: knows the installed headers and library, and nothing else. */
#include <belay/fault.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    printf("%s: %s\n", belay_code_name(BELAY_INDEX_RANGE), belay_code_why(BELAY_INDEX_RANGE));
    return strcmp(belay_code_name(BELAY_INDEX_RANGE), "index.range") != 0;
}
