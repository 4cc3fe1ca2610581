// Trains a tokenizer: counts words, learns merges, writes the file.
#include "data/tokenizer/train/train_pieces.h"

#include <stdlib.h>
#include <string.h>

static status check(const data_train_options *o)
{
    enum { UNIGRAM_LEAST = 32 }; // characters that always have a piece, and the unknown token
    const bool is_bpe = o->kind == DATA_TRAIN_BPE;
    const int64_t least = 256 + o->special_count + (is_bpe ? 0 : UNIGRAM_LEAST);
    if (o->vocab_size < least || o->vocab_size > DATA_TRAIN_VOCAB_MAX) {
        return fail(ST_USAGE,
                    "a vocabulary of %lld tokens; expected %lld (256 bytes%s and %lld special "
                    "token%s) to %d",
                    (long long)o->vocab_size, (long long)least, is_bpe ? "" : ", 32 pieces",
                    (long long)o->special_count, o->special_count == 1 ? "" : "s",
                    DATA_TRAIN_VOCAB_MAX);
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

// The results of a training's steps, in their order.
typedef struct training {
    arena *a;
    train_words words;
    train_model model; // of BPE, in `a`
    train_units units; // of Unigram
    train_pieces pieces;
    data_bytes json;
} training;

static status count(const host *h, training *t, const char *const *paths, int64_t path_count,
                    const data_train_options *o)
{
    data_bytes begin = {0};
    status st = o->kind == DATA_TRAIN_BPE ? train_file(o, NULL, &begin)
                                          : train_unigram_file(o, NULL, NULL, &begin);
    if (st == ST_OK) {
        st = train_count(h, paths, path_count, o, begin.items, begin.count, &t->words);
    }
    data_bytes_deinit(&begin);
    return st;
}

// The words are freed before the file is made.
static status learn(training *t, const data_train_options *o, data_train_result *r)
{
    *r = (data_train_result){.words = t->words.count, .words_dropped = t->words.dropped};
    if (o->kind == DATA_TRAIN_BPE) {
        TRY(train_bpe(t->a, &t->words, o, &t->model));
        train_words_deinit(&t->words);
        r->vocab_size = t->model.token_count;
        r->merges = t->model.merge_count;
        return train_file(o, &t->model, &t->json);
    }
    const int64_t wanted = o->vocab_size - o->special_count - 1 - 256;
    TRY(train_unigram(&t->words, wanted, o, &t->units, &t->pieces));
    train_words_deinit(&t->words);
    r->vocab_size = o->special_count + 1 + 256 + t->pieces.count;
    return train_unigram_file(o, &t->units, &t->pieces, &t->json);
}

status data_tokenizer_train(const host *h, const char *const *paths, int64_t path_count,
                            const data_train_options *options, const char *out_path,
                            data_train_result *result)
{
    ASSERT(options->threads >= 1 && options->threads <= DATA_TRAIN_THREADS_MAX);
    TRY(check(options));
    training t = {.a = NULL};
    data_train_result r;
    TRY(arena_create("tokenizer training", 0, &t.a));
    status st = count(h, &t, paths, path_count, options);
    if (st == ST_OK) st = learn(&t, options, &r);
    if (st == ST_OK) st = host_write_all(h, out_path, t.json.items, t.json.count);
    if (st == ST_OK) *result = r;
    train_words_deinit(&t.words);
    train_units_deinit(&t.units);
    free(t.pieces.items);
    data_bytes_deinit(&t.json);
    arena_destroy(t.a);
    return st;
}
