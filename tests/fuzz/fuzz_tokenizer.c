// Fuzz entry: any bytes as a tokenizer.json, or as the merges of a small vocabulary, and as a text.
// A tokenizer that opens must encode any text into ids of its vocabulary whose decoding is the
// text, and the bytes between must be told apart from it.
#include "data/tokenizer.h"
#include "memory_host.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// All 256 bytes and a few words, in the file's spelling.
static int64_t small_vocab(char *out, int64_t room)
{
    static const char *const words[] = {"ab",  "abc", "\\u0120a",     "aa",
                                        "aaa", "bc",  "<|endoftext|>"};
    int next = 0;
    int64_t at = 0;
    for (int byte = 0; byte < 256; byte++) {
        const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        at += snprintf(out + at, (size_t)(room - at), "%s\"\\u%04x\": %d", byte == 0 ? "{" : ", ",
                       (unsigned)(prints ? byte : 256 + next++), byte);
    }
    for (int i = 0; i < COUNT_OF(words); i++) {
        at += snprintf(out + at, (size_t)(room - at), ", \"%s\": %d", words[i], 256 + i);
    }
    at += snprintf(out + at, (size_t)(room - at), "}");
    ASSERT(at < room);
    return at;
}

static void use(data_tokenizer *t, const char *text, int64_t count)
{
    for (int flags = 0; flags <= DATA_ENCODE_SPECIAL; flags++) {
        data_ids ids = {0};
        data_bytes whole = {0}, streamed = {0};
        data_decoder d = {0};
        status st = data_tokenizer_encode(t, text, count, flags, &ids);
        ASSERT(st == ST_OK || st == ST_DATA); // a byte that the vocabulary has no token for
        for (int64_t i = 0; i < ids.count; i++) {
            ASSERT(ids.items[i] >= 0 && ids.items[i] < data_tokenizer_vocab_size(t));
            st = data_decoder_next(&d, t, ids.items[i], 0, &streamed);
            ASSERT(st == ST_OK);
        }
        st = data_decoder_end(&d, &streamed);
        ASSERT(st == ST_OK);
        st = data_tokenizer_decode(t, ids.items, ids.count, 0, &whole);
        ASSERT(st == ST_OK);
        data_ids_deinit(&ids);
        data_bytes_deinit(&whole);
        data_bytes_deinit(&streamed);
    }
}

// The first byte chooses the form; the rest is the file and the text.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    const char *bytes = (const char *)data + 1;
    const int64_t count = (int64_t)size - 1;
    char vocab[8192];
    const bool is_merges = data[0] % 2 == 1;
    memory_files files = {0};
    files.files[0] = (struct file){"t/tokenizer.json", bytes, count, NULL};
    if (is_merges) {
        files.files[0] = (struct file){"t/merges.txt", bytes, count, NULL};
        files.files[1] =
            (struct file){"t/vocab.json", vocab, small_vocab(vocab, sizeof(vocab)), NULL};
    }
    const host h = {.api = &memory_api, .state = &files};
    arena *a = NULL;
    if (arena_create("fuzz", 0, &a) != ST_OK) return 0;
    data_tokenizer *t = NULL;
    const char *path = is_merges ? "t/merges.txt" : "t/tokenizer.json";
    if (data_tokenizer_open(&h, a, path, &t) == ST_OK) {
        use(t, bytes, count);
        data_tokenizer_close(t);
    } else {
        ASSERT(status_blast_radius(error_last()->code) == RADIUS_USER);
    }
    // The bytes as a text, whatever they were as a file.
    ASSERT(data_tokenizer_open(&h, a, "bytes", &t) == ST_OK);
    use(t, bytes, count);
    data_tokenizer_close(t);
    arena_destroy(a);
    return 0;
}
