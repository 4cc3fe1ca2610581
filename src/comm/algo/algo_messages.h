// The rows of the algorithms over messages, for algo_table.c.
#ifndef COMM_ALGO_MESSAGES_H
#define COMM_ALGO_MESSAGES_H

#include "comm/algo/algo.h"

// Strict: the tree over shards.
extern const comm_algorithm comm_algorithm_all_reduce_gather; // small
extern const comm_algorithm comm_algorithm_all_reduce_pieces;
extern const comm_algorithm comm_algorithm_reduce_scatter_pieces;
extern const comm_algorithm comm_algorithm_reduce_gather; // small
extern const comm_algorithm comm_algorithm_reduce_pieces;
// Order `any`.
extern const comm_algorithm comm_algorithm_all_reduce_doubling; // small
extern const comm_algorithm comm_algorithm_all_reduce_halving;
extern const comm_algorithm comm_algorithm_all_reduce_ring;
extern const comm_algorithm comm_algorithm_reduce_scatter_halving;
extern const comm_algorithm comm_algorithm_reduce_scatter_ring;
extern const comm_algorithm comm_algorithm_reduce_tree;
// These sum nothing.
extern const comm_algorithm comm_algorithm_all_gather_bruck; // small
extern const comm_algorithm comm_algorithm_all_gather_doubling;
extern const comm_algorithm comm_algorithm_all_gather_ring;
extern const comm_algorithm comm_algorithm_all_to_all_bruck; // small
extern const comm_algorithm comm_algorithm_all_to_all_pairwise;
extern const comm_algorithm comm_algorithm_all_to_allv_pairwise;
extern const comm_algorithm comm_algorithm_barrier_dissemination;
extern const comm_algorithm comm_algorithm_broadcast_tree;
extern const comm_algorithm comm_algorithm_gather_tree;
extern const comm_algorithm comm_algorithm_scatter_tree;
// Within the hosts, then between them.
extern const comm_algorithm comm_algorithm_all_reduce_two_level;
extern const comm_algorithm comm_algorithm_reduce_scatter_two_level;
extern const comm_algorithm comm_algorithm_all_gather_two_level;
extern const comm_algorithm comm_algorithm_broadcast_two_level;
extern const comm_algorithm comm_algorithm_all_to_all_two_level;
extern const comm_algorithm comm_algorithm_all_to_allv_two_level;
extern const comm_algorithm comm_algorithm_barrier_two_level;

#endif
