// Drops documents that a language model finds too unlikely or too likely, by the bits that it needs
// for a byte (perplexity filtering: Wenzek et al. 2020, CCNet, arXiv:1911.00359; Marion et al.
// 2023, arXiv:2309.04564). Unlikely texts are noise, and very likely ones repeat themselves.
//
// The model is a run of the user. The scorer that runs it comes from above this folder; each thread
// opens its own when the first document comes.
#include "data/filter/family.h"

#include <stdlib.h>

#define AT(field) (int64_t) offsetof(filter_config, quality.field)
static const option rows[] = {
    {.key = "quality.model",
     .kind = OPTION_PATH,
     .offset = AT(model),
     .help = "run, checkpoint or Hugging Face folder of the model that scores texts"},
    {.key = "quality.max_bits",
     .kind = OPTION_REAL,
     .offset = AT(max_bits),
     .default_text = "2",
     .max = 1000,
     .unit = "bits per byte",
     .help = "most bits per byte that a document may need"},
    {.key = "quality.min_bits",
     .kind = OPTION_REAL,
     .offset = AT(min_bits),
     .default_text = "0",
     .max = 1000,
     .unit = "bits per byte",
     .help = "fewest bits per byte that a document may need"},
    {.key = "quality.bytes",
     .kind = OPTION_INT,
     .offset = AT(bytes),
     .default_text = "1000",
     .min = 16,
     .max = 1 << 20,
     .unit = "bytes",
     .help = "beginning of a document that is scored, at most a sequence of the model"},
};
enum { RULE_UNLIKELY, RULE_LIKELY };
static const char *const rules[] = {"too-unlikely", "too-likely", NULL};

typedef struct quality_state {
    const filter_scorer *scorer;
    void *opened; // NULL: not yet
} quality_state;

static status open_state(const host *h, const filter_config *c, void **out)
{
    (void)h; // the scorer reads the model
    if (c->quality.model == NULL) {
        return fail(ST_CONFIG_KEY, "the filter quality needs quality.model");
    }
    quality_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "no memory for the filters");
    *out = s;
    return ST_OK;
}

static void close_state(void *state)
{
    quality_state *s = state;
    if (s == NULL) return;
    if (s->opened != NULL) s->scorer->close(s->opened);
    free(s);
}

static status apply(filter_run *r, int *rule)
{
    quality_state *s = r->state;
    double bits = 0.0;
    bool is_known = false;
    if (s->opened == NULL) {
        s->scorer = r->c->quality.scorer;
        if (s->scorer == NULL) {
            return fail(ST_UNSUPPORTED, "the filter quality has no program that scores texts");
        }
        TRY(s->scorer->open(s->scorer->context, r->c->quality.model, &s->opened));
    }
    int64_t count = min_i64(r->count, r->c->quality.bytes);
    while (count > 0 && count < r->count && ((uint8_t)r->text[count] & 0xc0) == 0x80) count--;
    TRY(s->scorer->score(s->opened, r->text, count, &bits, &is_known));
    if (!is_known) return ST_OK; // too short to predict anything
    if (bits > r->c->quality.max_bits) *rule = RULE_UNLIKELY;
    if (bits < r->c->quality.min_bits) *rule = RULE_LIKELY;
    return ST_OK;
}

const data_filter data_filter_quality = {
    .name = "quality",
    .about = "drops documents that a language model finds too unlikely or too likely",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = open_state,
    .close = close_state,
    .apply = apply};
