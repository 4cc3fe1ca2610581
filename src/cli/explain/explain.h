// Facts about a run before any rank is started, and the functions that show them.
//
// explain.c collects: configuration, model, mesh, stages of the layers, the pipeline simulated in
// virtual time, and, for requested ranks, their plans. explain_text.c, explain_svg.c and
// explain_rank.c show them. All but plans is arithmetic on the mesh, so one rank of 65,536 costs as
// much as one of two.
#ifndef CLI_EXPLAIN_EXPLAIN_H
#define CLI_EXPLAIN_EXPLAIN_H

#include "assemble/assemble.h"
#include "cli/cli.h"
#include "model/model.h"
#include "plan/pipeline.h"
#include "plan/schedule/timeline.h"

enum {
    EXPLAIN_STAGES = 64
}; // limit on pp rows of tables and pictures; the middle of longer ones is left out

// The bytes of one rank.
typedef struct explain_bytes {
    int64_t rank;
    int64_t kind[PLAN_BYTES_COUNT]; // at the peak
    int64_t all;                    // its arena, and the copy that is saved in the background
    int64_t snapshot, copies;
} explain_bytes;

typedef struct explain {
    cli_context *cli;
    run_config *r;
    decoder_spec spec;
    bool vocab_is_known; // otherwise the tokenizer could not be opened, and the preset's is used
    plan_mesh mesh;      // seen from rank 0
    int64_t ranks;
    op_model *model; // the whole model
    plan_pipeline pipe;
    const plan_schedule *schedule; // with one stage: 1f1b
    const timeline_cost *costs;    // [virtual stage] proportional to the FLOPs of its layers
} explain;

// Reads CONFIG (a file, a run, a folder of `init`) and the keys that override it.
NODISCARD status explain_open(cli_context *cli, const cli_call *call, explain *out);
// Prints which ranks hold which experts; nothing for a dense model.
void explain_experts(const explain *x);
// Micro-batches of a step on one rank of dp; a plan decides their number.
NODISCARD status explain_stages(explain *x, int64_t microbatches);
// Makes the plans of a rank in the caller's arena.
NODISCARD status explain_plans(const explain *x, arena *a, int64_t rank, assemble_plans **out);
explain_bytes explain_bytes_of(const assemble_plans *plans, int64_t rank);
// Prices of the simulated step: FLOPs, or the same time for every forward, input and weight
// gradient.
typedef enum explain_price { PRICE_FLOPS, PRICE_EQUAL } explain_price;
// Simulates at least `least` micro-batches instead of all of the step; 0: all.
NODISCARD status explain_simulate(const explain *x, explain_price price, int64_t least,
                                  plan_timeline **out);

// "embed, 0 to 7": the layers of a virtual stage. Returns buffer.
const char *explain_layers(const explain *x, int32_t stage, char buffer[64]);

// Shows the whole run: as text, and as one picture.
NODISCARD status explain_print(const explain *x, explain_price price, const explain_bytes *bytes,
                               int32_t count);
NODISCARD status explain_svg(const explain *x, explain_price price, const explain_bytes *bytes,
                             int32_t count, text *out);
extern const uint32_t explain_bytes_colours[PLAN_BYTES_COUNT];
// Shows the actions of one pp rank in a step, unless they are too many to simulate.
NODISCARD status explain_row(const explain *x, int32_t pp);
// Shows figures that people quote, with verdicts (claims.h); `more`: a user's file of them, NULL:
// none.
NODISCARD status explain_claims(cli_context *cli, const char *more, bool as_json);
// Shows the catalogue. word: a kind ("profiles") or the name of an entry; NULL: all entries of all
// kinds. name: an entry of that kind; NULL: all of them.
NODISCARD status explain_catalog(cli_context *cli, const char *word, const char *name);
// Shows a simulated run on a cluster of the catalogue: as text and, if `svg` is not NULL, as one
// picture.
NODISCARD status explain_cluster(cli_context *cli, const cli_call *call, const char *machine,
                                 const char *svg);
// Shows one rank of the job.
NODISCARD status explain_rank_page(const explain *x, const assemble_plans *plans, int64_t rank);

#endif
