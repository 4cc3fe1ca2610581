// The operations: their names, operands and results.
#ifndef OP_OP_CODES_H
#define OP_OP_CODES_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Operands, in order; [x] may be missing (tensor_id -1). N rows = tokens of the micro-batch, row
// b*T + t is position t of sequence b. Statistics (r, mean, lse, losses) are fp32. "+=" outputs are
// accumulators: the kernel continues from the present value, or from +0 if call.accumulate is
// false; every sum over rows is one sequential sum, row after row, so a cut between rows changes no
// bit.
//   EMBEDDING      ids(N) table(V,D) [positions(N) position_table(P,D)]  -> x(N,D); of a table cut
//                  by rows (piece.whole_rows): x = -0 where the id is not in the piece
//   EMBEDDING_DW   ids(N) dx(N,D)                                         -> += dtable(V,D); the
//                  row of id attrs.skipped - 1 gets nothing
//   MATMUL         x(N,K) w(M,K) [bias(M)] [history(3,64)]
//                                                   -> y(N,M) = act(x w^T + bias); with attrs.fp8
//                  operands are rounded to 8 bits first (op/fp8.h); a history gives their factors
//   MATMUL_DX      dy(N,M) w(M,K) [before(N,K)] [history]
//                                                   -> dx(N,K) = before + dy w: the sum continues
//   MATMUL_DW      dy(N,M) x(N,K) [history]         -> += dw(M,K) = dy^T x
//   FP8_COUNTS     dy(N,M) x(N,K) w(M,K)            -> += counts(3,64)
//   FP8_COUNTS_ROWS  dy(R,M) x(R,K) [offsets] [counts] w(E*M,K) -> += counts(E*3,64): of each
//                  expert's rows and matrix
//   FP8_HISTORY    counts(H,64) steps(H,64)         -> steps (op/fp8.c)
//   BIAS_DW        dy(N,M)                          -> += db(M)
//   ADD            a b                              -> y = a + b
//   ADD_BIAS       x(N,M) bias(M)                   -> y(N,M) = x + bias
//   SUM            a [b c d e f g h]                -> y: the tree over shards, ((a + b) + (c + d))
//                  + ..., in fp32, rounded once: for the terms of one rank; ALL_REDUCE does the
//                  same between ranks in strict order
//   RMSNORM        x(N,G*D) w(D) [delta] [dots(N,1)] -> y r(N,G) [h = x + delta]; each of the G
//                  groups of D columns of a row is normalized separately (G > 1: QK norm);
//                  y = h * r * (w + attrs.plus). With dots, the columns are a piece of
//                  piece.whole_columns, whose sums of squares are given
//   RMSNORM_DX     dy h r w [dh] [dots(N,1)]        -> dx (+ dh, the gradient that reached h past
//                  the norm). With dots of dy and h, the columns are such a piece
//   ROW_DOTS       x(N,C) [dy(N,C) w(C)]            -> dots(N,1): the sum of x^2, or of
//                  dy (w + attrs.plus) x, over the columns; with piece.shards only over those of
//                  shard piece.first_shard of piece.whole_columns, of which x has C from
//                  piece.first_column on
//   RMSNORM_DW     dy h r                           -> += dw(D)
//   LAYERNORM      x(N,D) w(D) [b(D)] [delta]       -> y mean(N) r(N) [h]
//   LAYERNORM_DX   dy h mean r w [dh]               -> dx
//   LAYERNORM_DW   dy h mean r                      -> += dw(D) [+= db(D)]
//   ROPE           x(N,C) positions(N) table(P,D)   -> y(N,C); of each of the attrs.heads heads of
//                  attrs.head_dim columns the first D are rotated; the others, and those after the
//                  heads (values), are copied; table row: D/2 cosines, D/2 sines (attention factor
//                  included); attrs.inverse: the inverse rotation
//   ATTENTION      q(N,H*D) k(Nk,KV*D) v(Nk,KV*D) [documents(N)] [lengths(B)] [sinks(H)]
//                  [pages(B*S_max/P)]              -> y(N,H*D) lse(N,H)
//                  without lengths: Nk = N, query t sees keys s <= t. With lengths (a cache): k, v
//                  are (B*S_max, KV*D), query t of T has position lengths[b] - T + t, keys <
//                  lengths[b]. With pages too (attrs.page = P rows of a page), k, v are pools of
//                  pages for all sequences, and row s of sequence b is row s % P of its page
//                  pages[b * S_max / P + s / P], S_max rounded up to whole pages. With
//                  piece.cp_ways = W > 1: Nk = W N, gathered rows; documents(Nk) by position; or,
//                  with piece.ring, Nk = N: the rows of rank piece.key_at, and the result over
//                  them alone. With piece.seq_ways = H a sequence has H times its rows in other
//                  operations. With attrs.value_dim = V heads of v and y have V columns instead of
//                  D. attrs.cap caps scores. A sink is the score of a key that every query sees
//                  and whose value is 0; lse counts it
//   ATTENTION_MERGE a(N,H*D) lse_a(N,H) b lse_b    -> y(N,H*D) lse(N,H): attention over the keys of
//                  both
//   ATTENTION_BWD  dy q k v y lse [documents]       -> dq dk dv; with piece.shards > 0 the
//                  queries of shard piece.first_shard only (op/zigzag.h): their rows of dq,
//                  their terms of dk and dv
//   SINKS_DW       dy y lse sinks(H)                -> += dsinks(H)
//   CACHE_APPEND   x(N,KV*D) lengths(B) [pages]     -> cache(B*S_max, KV*D): rows lengths[b]-T ..
//                  lengths[b]-1; pages as in ATTENTION
//   SWIGLU         h(N,2F)                          -> a(N,F) = silu(h[:, :F]) * h[:, F:]
//   SWIGLU_BWD     h da                             -> dh(N,2F)
//   CLAMPED_GATE   h(N,2F)                          -> a(N,F) = (1 + u) g sigmoid(attrs.scale g);
//                  g = min(h[:, :F], L) and u = h[:, F:] within -L .. L; L = attrs.cap
//   CLAMPED_GATE_BWD h da                           -> dh(N,2F)
//   ACTIVATION     x                                -> y (attrs.activation)
//   ACTIVATION_BWD x dy                             -> dx
//   DROPOUT        x                                -> y (attrs.dropout, attrs.site); also its
//                  gradient
//   SCALE          x                                -> y = attrs.scale * x
//   SOFT_CAP       x                                -> y = attrs.cap * tanh(x / attrs.cap)
//   CLAMP          x                                -> y: x within -attrs.cap .. attrs.cap
//   CLAMP_BWD      x dy                             -> dx: dy where x is within them, else 0
//   ROW_SQUARES    w(M,K) a(R,K) b(M,R)             -> sq(1,M): the squared length of each row of
//                  w + attrs.scale b a
//   MAGNITUDE      x(N,M) m(M) sq(1,M)              -> y(N,M): column j times m[j] / root of sq[j];
//                  its gradient too
//   DEQUANTIZE     q(M,P), bytes                    -> w(M,K): attrs.quant (op/quantized.h)
//   MAGNITUDE_DW   dy(N,M) x(N,M) sq(1,M)           -> += dm(M)
//   UNPACK         x(W*N,C)                         -> y(N,W*C/R): the W tiles of rows of x
//                  (piece.shard_count) become columns, as an ALL_GATHER of columns needs. R
//                  neighbouring tiles (attrs.repeat) have the same columns and are added
//   PACK           x(N,C)                           -> y(W*N,C*R/W): the inverse; R neighbouring
//                  tiles get the same columns
//   ZIGZAG         x(W*N,C)                         -> y(W*N,C): tiles of rows of W neighbouring
//                  ranks of AXIS_CP -> the rows of each sequence by position (op/zigzag.h);
//                  attrs.inverse: the inverse
//   HEAD_LOSS      x(N,D) w(V,D) labels(N) [stats] [slopes(N)]
//                                                   -> token_loss(N) [dx(N,D)] [+= dw(V,D)];
//                  label < 0: ignored (loss 0, gradient 0). Gradients are of sum(token_loss) *
//                  loss_scale / call.loss_divisor, or of sum(slope * token_loss). z-loss:
//                  + attrs.z_loss * lse^2, in token_loss too. attrs.cap caps logits, here and in
//                  HEAD_STATS. With stats(R,3Q), all shards' of HEAD_STATS: tile t of R / N has
//                  shards t Q .. t Q + Q-1 of each row.
//                  w may be a piece then (piece.whole_rows),
//                  dx(N,D*shard_count) has a term of the sum for each of its shards, by columns.
//   HEAD_STATS     x(N,D) w(V,D) labels(N)          -> stats(N,3*shard_count): of each shard of
//                  vocabulary (piece.shards) that w has: highest logit, sum of exp(logit -
//                  highest), the label's logit (0 where it is not in the shard)
//   SCORE          x(N,D) w(1,D) labels(N) [slopes(N)] -> token_loss(N) [dx(N,D)] [+= dw(1,D)]: the
//                  head of a reward model. token_loss is minus the product of the row of x with w
//                  where a row has a label, else 0; gradients as those of HEAD_LOSS
//   OBJECTIVE      token_loss(Na) documents(Na) given(Na,4) -> losses(N) units(N) measures(N,4)
//                  [slopes(N)]: the losses of pairs or groups of documents in a sequence
//                  (op/objective.h): units >= 0 where a row has one; slopes are the derivatives of
//                  sum(losses) with respect to token_loss. Na = N; with piece.cp_ways = W > 1:
//                  Na = W N, losses as they were gathered, documents and given by position
//   GATHER         x(N,D) rows(B)                   -> y(B,D)
//   SAMPLE         logits(B,V) params(B,8, fp32) draws(B, i64) -> ids(B); params: temperature,
//                  top_k, top_p, min_p, seed low, seed high (bits), 0, 0; temperature 0: greedy,
//                  ties to the lower id; draws[b]: number of earlier draws of sequence b. Its
//                  random word follows from its seed and that count alone, so its text does not
//                  depend on its row
//   CAST           x                                -> y of another type (nearest even)
//   TREE_ADD       src                              -> += dst
//   STEP_BEGIN     -                                -> step: zeroes the step's accumulators
//   STEP_LOSS      token_loss(N) labels(N)          -> step: adds losses and counts unmasked
//                  tokens, exactly
//   GRAD_NORM      grad                             -> step: adds the squares, exactly
//                  (attrs.tensor_index)
//   STEP_DECIDE    -                                -> step: norm, clip, skip, loss scale
//                  (op/step.h)
//   ADAMW          grad master m v [slots(L,E)]     -> master m v [weight: the working copy]
//   MUON           grad master m                    -> master m [weight]: each part is a matrix,
//                  or each of attrs.experts equal ranges of rows (0: parts)
//   MUON_DIRECTION grad m                           -> m u: the first half of MUON, element by
//                  element
//   MUON_UPDATE    u(R,C) master(r,c)               -> master [weight]: the second half, on a
//                  piece: u is the whole matrix (piece.part_whole rows of each part);
//                  piece.part_first, part_rows, first_column and whole_columns give the
//                  piece's place in it
//
// Collectives along attrs.axis; op/pass/partition.c inserts them, and lowering turns them into
// communications. They have no kernels. In order (piece.shards > 0) input i is the term of shard
// piece.first_shard + i of the fixed tree; else there is one input.
//   ALL_REDUCE     a [b c d e f g h]                -> y: the sum of all ranks' terms
//   REDUCE_SCATTER a [b c d e f g h]                -> y: this rank's rows of the sum, 1 / ways of
//                  the positions of each sequence
//   ALL_GATHER     x                                -> y: the inverse cut, all rows; attrs.stacked:
//                  all rows of each rank, one rank after the other; for a weight, with
//                  piece.part_count: part by part, part_rows of part_whole rows, from row
//                  part_first of x on
//   ALL_TO_ALL     x(W*N,C)                         -> y(W*N,C): tile i goes to rank i, and tile i
//                  of y comes from rank i
//   EXCHANGE_ROWS  x(R,C) offsets(X) offsets(X)     -> y(P,C), any type: rows from offsets[r L] to
//                  offsets[(r+1) L] - 1 go to rank r, L = attrs.experts; what comes lies by rank,
//                  as the second offsets say
//   SHIFT          x                                -> y: x of the rank before; the last rank is
//                  before the first
// With attrs.zigzag REDUCE_SCATTER and ALL_GATHER convert between all rows and those of a rank
// along AXIS_CP. Along AXIS_CP an ALL_TO_ALL is among the ranks that exchange heads, every other
// collective among the other ranks of the axis (plan/mesh.h).
//
// Experts (op/experts.c). A token takes T of E experts and has a row for each of them. R = T N
// bounds the rows; offsets(E+1), computed on the device, gives their number: expert e has rows
// offsets[e] to offsets[e+1] - 1, and no kernel reads or writes a row from offsets[E] on. An id
// below 0 stands for no expert: its row_of is -1.
//   ROUTE          logits(N,E) [bias(E)]            -> ids(N,T) weights(N,T): the attrs.top_k = T
//                  largest scores, descending, ties to the lower id; weights are the scores, a
//                  softmax or with attrs.sigmoid sigmoids, or with attrs.normalize those divided
//                  by their sum; times attrs.scale (0: 1). The bias is added for the choice alone.
//                  With attrs.groups experts are taken from the attrs.top_groups best groups of
//                  neighbours only
//   ROUTE_BWD      dweights logits ids weights      -> dlogits(N,E): + the gradients of two losses
//                  of each row, scaled as HEAD_LOSS scales its own: attrs.aux_loss * E * sum over e
//                  of (rows that take e / rows) * (mean of p_e), where p are scores that add up to
//                  1 and both shares are those of the row's sequence; attrs.z_loss * lse^2.
//                  [whole(A,T)]: the ids of all rows of these sequences, of which the rank has some
//   PERMUTE        x(N,D) ids(N,T) [weights(N,T)]   -> rows(R,D) row_of(N,T) offsets(E+1)
//                  [scale(R,1)]: a row for each expert that is taken, ordered by expert and then by
//                  token; E = attrs.experts; scale: the weight of each row
//   PERMUTE_BWD    drows row_of [dscale]            -> dx(N,D) [dweights(N,T)]
//   UNPERMUTE      rows(R,D) row_of(N,T) [weights]  -> y(N,D): each token's rows, times their
//                  weights, added in the order of its T experts
//   UNPERMUTE_BWD  dy row_of [rows weights]         -> drows(R,D) [dweights(N,T)]
//   GROUPED_MATMUL x(R,K) w(E*M,K) [offsets(E+1)] [history(E*3,64)]
//                                                   -> y(R,M): each row with the matrix of its
//                  expert, one of E = attrs.experts. Without offsets each expert has R / E rows;
//                  with S E + 1 offsets, those of expert e of rank s begin at offsets[s E + e]
//   GROUPED_MATMUL_DX  dy(R,M) w(E*M,K) [offsets] [before(R,K)] [history] -> dx(R,K) =
//                  before + dy w: the sum continues; with piece.whole_rows dy has the M columns of
//                  the rows of each matrix from piece.first_row on
//   GROUPED_MATMUL_DW  dy(R,M) x(R,K) [offsets]   -> += dw(E*M,K): a sequential sum for each expert
//                  over its rows
//                  [counts(Q,L)]: with counts, over the rows of the action's sequences alone
//                  [history]
//   LIMIT_ROWS     ids(N,T)                         -> ids(N,T): -1 for tokens of a sequence beyond
//                  the first attrs.limit of an expert, in the order of tokens and their choices
//   COUNT_ROWS     ids(N,T)                         -> counts(Q,L): rows of each of the L =
//                  attrs.experts experts of each of attrs.ranks ranks; row r Q' + q: of rank r's
//                  experts, in sequence q of the Q' of the micro-batch, or in piece q of their
//                  equal pieces
//   PLACE_EXPERTS  ids(N,T) slots(L,E)              -> slots(N,T): the slot of each choice's
//                  expert; the row of the layer has the slots of the E experts, whole numbers. An
//                  id below 0 stays
//   ROW_OFFSETS    counts(Q,L)                      -> offsets(X): of the rows of rank 0, expert 0
//                  by expert, then those of rank 1 ...
//   STEP_ROUTES    ids(N,T) [kept(N,T)] [logits(N,E)] [whole(A,T)] -> step: counts the tokens of
//                  each expert and the choices that `kept` leaves out, and with logits the losses
//                  of the router; whole: as of ROUTE_BWD
//   BALANCE        [target(E)] bias(E)              -> bias(E): + attrs.bias_rate for experts with
//                  less than their share of the step's load, - for those with more (Wang et al.
//                  2024, arXiv:2408.15664); shares are `target`, or even. Nothing in a step that is
//                  skipped
//   NARROW_ROWS    x(R,D)                           -> q(R,D+1), bytes: e4m3 numbers of x times a
//                  power of two of the row, and its exponent + 128
//   WIDEN_ROWS     q(R,D+1)                         -> y(R,D)
//   GATE_ROWS      x(R,F) gate(R,1)                 -> y(R,F) = x * sigmoid(gate)
//   GATE_ROWS_BWD  dy x gate                        -> dx(R,F) dgate(R,1)
//   BIAS_ROWS      x(R,M) b(E*M,1) [offsets]        -> y(R,M): each row + the bias of its expert
//   BIAS_ROWS_DW   dy(R,M) [scale(R,1)] [offsets] [counts] -> += db(E*M,1), of scale * dy
//   BIAS_TOKENS    x(N,D) ids(N,T) weights(N,T) b(E,D) -> y(N,D): + the biases of a token's
//                  experts, times their weights
//   BIAS_TOKENS_DW dy ids weights                   -> += db(E,D)
//   BIAS_TOKENS_DS dy ids b                         -> dweights(N,T)
//   SCALE_ROWS     x(R,F) scale(R,1)                -> y(R,F) = x * scale
//   SCALE_ROWS_DS  dy(R,F) x(R,F)                   -> dscale(R,1)
//
// Latent attention (op/latent.c).
//   LATENT         q(N,H*D) kv(N,H*(D-P+V)) r(N,P) positions(N) table(S,P) -> q(N,H*D) k(N,H*D)
//                  v(N,H*V): the last P columns of each head rotated; all heads share r, which
//                  is one head. D = attrs.head_dim, V = attrs.value_dim
//   LATENT_BWD     dq dk dv positions table         -> dq dkv
//   LATENT_DR      dk positions table               -> dr(N,P): the sum over heads
//   LATENT_CACHED  q(N,H*D) w(H*(D-P+V),R) c(B*S_max,R) r(B*S_max,P) lengths(B) positions(N)
//                  table [pages]                    -> y(N,H*V): attention over a cache of latent
//                  rows c and rotated rows r; query t of T and pages are as in ATTENTION. w makes
//                  a head's keys and values of c
#define OP_TABLE(X)     \
    OP_TABLE_COMPUTE(X) \
    OP_TABLE_COMMUNICATE(X)
#define OP_TABLE_LATENT(X)    \
    X(LATENT, latent)         \
    X(LATENT_BWD, latent_bwd) \
    X(LATENT_DR, latent_dr)   \
    X(LATENT_CACHED, latent_cached)
#define OP_TABLE_COMMUNICATE(X)       \
    X(ALL_REDUCE, all_reduce)         \
    X(REDUCE_SCATTER, reduce_scatter) \
    X(ALL_GATHER, all_gather)         \
    X(ALL_TO_ALL, all_to_all)         \
    X(EXCHANGE_ROWS, exchange_rows)   \
    X(SHIFT, shift)
#define OP_TABLE_EXPERTS(X)                 \
    X(ROUTE, route)                         \
    X(ROUTE_BWD, route_bwd)                 \
    X(PERMUTE, permute)                     \
    X(PERMUTE_BWD, permute_bwd)             \
    X(UNPERMUTE, unpermute)                 \
    X(UNPERMUTE_BWD, unpermute_bwd)         \
    X(GROUPED_MATMUL, grouped_matmul)       \
    X(GROUPED_MATMUL_DX, grouped_matmul_dx) \
    X(GROUPED_MATMUL_DW, grouped_matmul_dw) \
    X(FP8_COUNTS_ROWS, fp8_counts_rows)     \
    X(BIAS_ROWS, bias_rows)                 \
    X(BIAS_ROWS_DW, bias_rows_dw)           \
    X(BIAS_TOKENS, bias_tokens)             \
    X(BIAS_TOKENS_DW, bias_tokens_dw)       \
    X(BIAS_TOKENS_DS, bias_tokens_ds)       \
    X(NARROW_ROWS, narrow_rows)             \
    X(WIDEN_ROWS, widen_rows)               \
    X(GATE_ROWS, gate_rows)                 \
    X(GATE_ROWS_BWD, gate_rows_bwd)         \
    X(SCALE_ROWS, scale_rows)               \
    X(SCALE_ROWS_DS, scale_rows_ds)         \
    X(COUNT_ROWS, count_rows)               \
    X(ROW_OFFSETS, row_offsets)             \
    X(LIMIT_ROWS, limit_rows)               \
    X(PLACE_EXPERTS, place_experts)         \
    X(STEP_ROUTES, step_routes)             \
    X(BALANCE, balance)
#define OP_TABLE_COMPUTE(X)               \
    X(EMBEDDING, embedding)               \
    X(EMBEDDING_DW, embedding_dw)         \
    X(MATMUL, matmul)                     \
    X(MATMUL_DX, matmul_dx)               \
    X(MATMUL_DW, matmul_dw)               \
    X(BIAS_DW, bias_dw)                   \
    X(FP8_COUNTS, fp8_counts)             \
    X(FP8_HISTORY, fp8_history)           \
    X(ADD, add)                           \
    X(ADD_BIAS, add_bias)                 \
    X(SUM, sum)                           \
    X(UNPACK, unpack)                     \
    X(PACK, pack)                         \
    X(ZIGZAG, zigzag)                     \
    X(RMSNORM, rmsnorm)                   \
    X(RMSNORM_DX, rmsnorm_dx)             \
    X(RMSNORM_DW, rmsnorm_dw)             \
    X(ROW_DOTS, row_dots)                 \
    X(LAYERNORM, layernorm)               \
    X(LAYERNORM_DX, layernorm_dx)         \
    X(LAYERNORM_DW, layernorm_dw)         \
    X(ROPE, rope)                         \
    X(ATTENTION, attention)               \
    X(ATTENTION_MERGE, attention_merge)   \
    X(ATTENTION_BWD, attention_bwd)       \
    X(SINKS_DW, sinks_dw)                 \
    X(CACHE_APPEND, cache_append)         \
    X(SWIGLU, swiglu)                     \
    X(SWIGLU_BWD, swiglu_bwd)             \
    X(GEGLU, geglu)                       \
    X(GEGLU_BWD, geglu_bwd)               \
    X(CLAMPED_GATE, clamped_gate)         \
    X(CLAMPED_GATE_BWD, clamped_gate_bwd) \
    X(ACTIVATION, activation)             \
    X(ACTIVATION_BWD, activation_bwd)     \
    X(DROPOUT, dropout)                   \
    X(SCALE, scale)                       \
    X(ROW_SQUARES, row_squares)           \
    X(MAGNITUDE, magnitude)               \
    X(MAGNITUDE_DW, magnitude_dw)         \
    X(DEQUANTIZE, dequantize)             \
    X(SOFT_CAP, soft_cap)                 \
    X(CLAMP, clamp)                       \
    X(CLAMP_BWD, clamp_bwd)               \
    X(HEAD_LOSS, head_loss)               \
    X(HEAD_STATS, head_stats)             \
    X(SCORE, score)                       \
    X(OBJECTIVE, objective)               \
    X(GATHER, gather)                     \
    X(SAMPLE, sample)                     \
    X(CAST, cast)                         \
    X(TREE_ADD, tree_add)                 \
    X(STEP_BEGIN, step_begin)             \
    X(STEP_LOSS, step_loss)               \
    X(GRAD_NORM, grad_norm)               \
    X(STEP_DECIDE, step_decide)           \
    X(ADAMW, adamw)                       \
    X(LION, lion)                         \
    X(MUON, muon)                         \
    X(MUON_DIRECTION, muon_direction)     \
    X(MUON_UPDATE, muon_update)           \
    OP_TABLE_EXPERTS(X)                   \
    OP_TABLE_LATENT(X)

typedef enum op_code {
#define OP_ENUM(upper, lower) OP_##upper,
    OP_TABLE(OP_ENUM)
#undef OP_ENUM
        OP_CODE_COUNT
} op_code;

#ifdef __cplusplus
}
#endif
#endif
