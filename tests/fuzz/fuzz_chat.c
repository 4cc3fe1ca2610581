// Fuzz entry: a line of a file of samples, in each format. What is taken has a mask as long as its
// ids; all else is refused with its place.
#include "data/chat.h"

#include "memory_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(data_chat *c, const uint8_t *data, size_t size)
{
    data_sample s = {.turns = 0};
    if (data_chat_encode(c, (const char *)data, (int64_t)size, "line", 1, &s) == ST_OK) {
        ASSERT(s.ids.count == s.trained.count);
        for (int64_t i = 0; i < s.trained.count; i++) ASSERT((s.trained.items[i] & ~1) == 0);
        ASSERT(s.ended <= s.turns);
    } else {
        const error_record *e = error_last();
        ASSERT(e->code == ST_DATA || e->code == ST_DAMAGED || e->code == ST_NO_MEMORY ||
               e->code == ST_DOES_NOT_FIT);
    }
    data_sample_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_files files = {0};
    const host h = {.api = &memory_api, .state = &files};
    arena *a = NULL;
    data_tokenizer *t = NULL;
    if (arena_create("fuzz", 256 << 20, &a) != ST_OK) return 0;
    const status opened = data_tokenizer_open(&h, a, "bytes", &t);
    ASSERT(opened == ST_OK);
    for (int format = DATA_FORMAT_AUTO; format <= DATA_FORMAT_SHAREGPT; format++) {
        const data_chat_spec spec = {
            .source = "chatml", .tokenizer = t, .format = (data_format)format};
        data_chat *c = NULL;
        const status st = data_chat_open(&h, a, &spec, &c);
        ASSERT(st == ST_OK);
        encode(c, data, size);
        data_chat_close(c);
    }
    data_tokenizer_close(t);
    arena_destroy(a);
    return 0;
}
