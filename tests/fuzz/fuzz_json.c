// Fuzz entry: any bytes as JSON. What is read is walked in full, so that every text and number is
// touched, and each key must be found again.
#include "base/format/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int64_t walk(const json *value)
{
    const int64_t count = json_count(value);
    int64_t sum = json_int(value, 1) != 0 || json_real(value, 0) > 0 || json_bool(value, false);
    const char *text = json_text(value, "");
    sum += (int64_t)strlen(text) <= json_text_bytes(value) ? 1 : 0;
    for (int64_t i = 0; i < count; i++) {
        const json *member = json_at(value, i);
        if (json_kind_of(value) == JSON_MAP) {
            const char *key = json_key_at(value, i, &member);
            ASSERT(json_get(value, key) == member);
        }
        sum += walk(member);
    }
    return sum;
}

// The reader of single members accepts all that the strict one does, and finds the same value.
static void members_check(const char *bytes, int64_t count, const json *root)
{
    static const char *const keys[] = {"text", "a"};
    json *found[2] = {NULL, NULL};
    const status st = json_parse_members(bytes, count, "fuzz", 1, keys, 2, found);
    ASSERT(root == NULL || st == ST_OK);
    for (int i = 0; i < 2; i++) {
        if (root != NULL) ASSERT(json_kind_of(found[i]) == json_kind_of(json_get(root, keys[i])));
        if (found[i] != NULL) ASSERT(walk(found[i]) > 0);
        json_free(found[i]);
    }
    error_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json *root;
    if (json_parse((const char *)data, (int64_t)size, "fuzz", &root) == ST_OK) {
        ASSERT(walk(root) > 0);
        members_check((const char *)data, (int64_t)size, root);
        json_free(root);
    } else {
        ASSERT(error_last()->code == ST_DAMAGED);
        members_check((const char *)data, (int64_t)size, NULL);
    }
    return 0;
}
