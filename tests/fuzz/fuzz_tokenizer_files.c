// Fuzz entry: any bytes as a SentencePiece model or as tiktoken's ranks. A tokenizer that opens must
// encode any text into ids of its vocabulary, or say why it does not, and decode them.
#include "data/tokenizer.h"
#include "memory_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char settings[] =
    "{\"pattern\": \"\\\\p{L}+| +|.\", \"special_tokens\": {\"<s>\": 300}}";

static void use(data_tokenizer *t, const char *text, int64_t count)
{
    for (int flags = 0; flags <= DATA_ENCODE_SPECIAL; flags++) {
        data_ids ids = {0};
        data_bytes whole = {0};
        status st = data_tokenizer_encode(t, text, count, flags, &ids);
        ASSERT(st == ST_OK || st == ST_DATA);
        for (int64_t i = 0; i < ids.count; i++) {
            ASSERT(ids.items[i] >= 0 && ids.items[i] < data_tokenizer_vocab_size(t));
        }
        st = data_tokenizer_decode(t, ids.items, ids.count, flags, &whole);
        ASSERT(st == ST_OK);
        data_ids_deinit(&ids);
        data_bytes_deinit(&whole);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 14) return 0;
    arena *a = NULL;
    if (arena_create("fuzz", 0, &a) != ST_OK) return 0;
    memory_files files = {0};
    files.files[0] = (struct file){"t/x.tiktoken", data, (int64_t)size, NULL};
    files.files[1] = (struct file){"t/x.json", settings, sizeof(settings) - 1, NULL};
    const host h = {.api = &memory_api, .state = &files};
    data_tokenizer *t = NULL;
    if (data_tokenizer_open(&h, a, "t/x.tiktoken", &t) == ST_OK) {
        static const char text[] = "a b\u2581c  <s>AB \xff \u00e9";
        use(t, text, sizeof(text) - 1);
        use(t, (const char *)data, (int64_t)size);
        data_tokenizer_close(t);
    } else {
        ASSERT(status_blast_radius(error_last()->code) == RADIUS_USER);
    }
    arena_destroy(a);
    return 0;
}
