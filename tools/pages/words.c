/* SPDX-License-Identifier: Apache-2.0 */
/* What the words for a command's arguments mean. */
#include "tools/pages/pages.h"

#include <string.h>

#include "base/attributes.h"

bool pages_is_path(const char *place)
{
    static const char *const paths[] = {"FILE", "FOLDER", "RUN", "DATA", "MODEL"};
    for (int i = 0; i < BL_COUNT(paths); i++)
        if (strcmp(place, paths[i]) == 0)
            return true;
    return false;
}

/* The word at *at, which goes behind it; its length, 0 at the end. */
static size_t next_word(const char **at)
{
    const char *word = *at + strspn(*at, " ");
    size_t length = strcspn(word, " ");
    *at = word + length;
    return length;
}

bool pages_argument(const bl_command *command, int n, char *out, size_t size)
{
    const char *at = command->arguments;
    size_t length;
    bool repeats = false;
    for (int seen = 0; (length = next_word(&at)) > 0;) {
        const char *word = at - length;
        if (word[0] == '-' || strncmp(word, "[--]", length) == 0) {
            if (word[0] == '-') /* its value */
                (void)next_word(&at);
            continue;
        }
        size_t letters = strspn(word + (word[0] == '['), "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        snprintf(out, size, "%.*s", (int)letters, word + (word[0] == '['));
        repeats = strstr(word, "...") != NULL;
        if (seen++ == n)
            return true;
    }
    return repeats;
}
