// Trains a tokenizer: counts words, learns merges, writes the file.
#include "data/tokenizer/train/train_internal.h"

#include <string.h>

static status check(const data_train_options *o)
{
    const int64_t least = 256 + o->special_count;
    if (o->vocab_size < least || o->vocab_size > DATA_TRAIN_VOCAB_MAX) {
        return fail(ST_USAGE,
                    "a vocabulary of %lld tokens; expected %lld (256 bytes and %lld special "
                    "token%s) to %d",
                    (long long)o->vocab_size, (long long)least, (long long)o->special_count,
                    o->special_count == 1 ? "" : "s", DATA_TRAIN_VOCAB_MAX);
    }
    for (int64_t i = 0; i < o->special_count; i++) {
        const char *text = o->special[i];
        const int64_t bytes = (int64_t)strlen(text);
        if (bytes == 0 || bytes > TOKENIZER_TOKEN_MAX || utf8_valid_prefix(text, bytes) != bytes) {
            return fail(ST_USAGE, "special token %lld is empty, too long or no UTF-8",
                        (long long)i + 1);
        }
        if (bytes == 1) {
            return fail(ST_USAGE, "special token \"%s\" is a single byte, which has a token anyway",
                        text);
        }
        for (int64_t k = 0; k < i; k++) {
            if (strcmp(o->special[k], text) != 0) continue;
            return fail(ST_USAGE, "special token \"%s\" is given twice", text);
        }
    }
    return ST_OK;
}

// The words are freed before the file is made.
static status learn(const host *h, arena *a, const char *const *paths, int64_t path_count,
                    const data_train_options *o, train_model *model, int64_t *word_count)
{
    data_bytes begin = {0};
    train_words words = {0};
    status st = train_file(o, NULL, &begin);
    if (st == ST_OK) {
        st = train_count(h, paths, path_count, o, begin.items, begin.count, &words);
    }
    if (st == ST_OK) st = train_bpe(a, &words, o, model);
    *word_count = words.count;
    train_words_deinit(&words);
    data_bytes_deinit(&begin);
    return st;
}

status data_tokenizer_train(const host *h, const char *const *paths, int64_t path_count,
                            const data_train_options *options, const char *out_path,
                            data_train_result *result)
{
    ASSERT(options->threads >= 1 && options->threads <= DATA_TRAIN_THREADS_MAX);
    TRY(check(options));
    arena *a = NULL;
    train_model model;
    data_bytes json = {0};
    int64_t words = 0;
    TRY(arena_create("tokenizer training", 0, &a));
    status st = learn(h, a, paths, path_count, options, &model, &words);
    if (st == ST_OK) st = train_file(options, &model, &json);
    if (st == ST_OK) st = host_write_all(h, out_path, json.items, json.count);
    if (st == ST_OK) {
        *result = (data_train_result){
            .vocab_size = model.token_count, .merges = model.merge_count, .words = words};
    }
    data_bytes_deinit(&json);
    arena_destroy(a);
    return st;
}
