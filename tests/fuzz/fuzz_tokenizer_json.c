// Fuzz entry: any bytes as the steps of a tokenizer.json, around a small vocabulary of one of the
// models, and as a text. A tokenizer that opens must encode any text into ids of its vocabulary, or
// say why it does not, and decode them.
#include "data/tokenizer.h"
#include "memory_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const models[] = {
    "{\"type\": \"BPE\", \"unk_token\": \"?\", \"byte_fallback\": true, \"vocab\": {\"?\": 0, \"a\": 1, "
    "\"b\": 2, \"ab\": 3, \"\\u2581\": 4, \"\\u2581a\": 5, \"<0x41>\": 6, \"\\u00c4\\u0142\": 7}, "
    "\"merges\": [\"a b\", [\"\\u2581\", \"a\"]]}",
    "{\"type\": \"WordPiece\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"a\": 1, \"##b\": 2, "
    "\"##a\": 3, \"ab\": 4, \",\": 5}}",
    "{\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": true, \"vocab\": [[\"?\", 0], "
    "[\"a\", -1.5], [\"ab\", -2], [\"\\u2581\", -1], [\"<0x41>\", -3], [\"b\", -2.5]]}",
};

static void use(data_tokenizer *t, const char *text, int64_t count)
{
    for (int flags = 0; flags <= (DATA_ENCODE_SPECIAL | DATA_ENCODE_ADD); flags++) {
        data_ids ids = {0};
        data_bytes whole = {0}, streamed = {0};
        data_decoder d = {.pending_count = 0};
        status st = data_tokenizer_encode(t, text, count, flags, &ids);
        ASSERT(st == ST_OK || st == ST_DATA);
        for (int64_t i = 0; i < ids.count; i++) {
            ASSERT(ids.items[i] >= 0 && ids.items[i] < data_tokenizer_vocab_size(t));
            // An expression of a decoder may give up.
            st = data_decoder_next(&d, t, ids.items[i], flags, &streamed);
            ASSERT(st == ST_OK || st == ST_DATA);
        }
        st = data_decoder_end(&d, &streamed);
        ASSERT(st == ST_OK || st == ST_DATA);
        st = data_tokenizer_decode(t, ids.items, ids.count, flags, &whole);
        ASSERT(st == ST_OK || st == ST_DATA);
        data_ids_deinit(&ids);
        data_bytes_deinit(&whole);
        data_bytes_deinit(&streamed);
    }
}

// The first byte chooses the model, the first line holds the steps, and the rest is the text.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 1 << 16) return 0;
    const char *steps = (const char *)data + 1;
    const char *newline = memchr(steps, '\n', size - 1);
    const int64_t steps_bytes = newline != NULL ? newline - steps : (int64_t)size - 1;
    const char *text = steps + steps_bytes;
    arena *a = NULL;
    char *file = NULL;
    if (arena_create("fuzz", 0, &a) != ST_OK) return 0;
    ASSERT(arena_format(a, &file, "{%.*s, \"model\": %s}", (int)steps_bytes, steps,
                        models[data[0] % COUNT_OF(models)]) == ST_OK);
    memory_files files = {0};
    files.files[0] = (struct file){"t/tokenizer.json", file, (int64_t)strlen(file), NULL};
    const host h = {.api = &memory_api, .state = &files};
    data_tokenizer *t = NULL;
    if (data_tokenizer_open(&h, a, "t/tokenizer.json", &t) == ST_OK) {
        use(t, text, (int64_t)size - 1 - steps_bytes);
        use(t, steps, steps_bytes);
        data_tokenizer_close(t);
    } else {
        ASSERT(status_blast_radius(error_last()->code) == RADIUS_USER);
    }
    arena_destroy(a);
    return 0;
}
