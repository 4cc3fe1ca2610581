// The algorithms. Without a tuning table, the first row that fits is taken.
#include "comm/algo/algo_table.h"
#include "comm/algo/algo_messages.h"

#include <string.h>

const comm_algorithm *const comm_algorithm_table[] = {
    &comm_algorithm_all_reduce_direct,
    &comm_algorithm_all_reduce_direct_rank,
    &comm_algorithm_reduce_direct,
    &comm_algorithm_reduce_direct_rank,
    &comm_algorithm_reduce_scatter_direct,
    &comm_algorithm_reduce_scatter_direct_rank,
    &comm_algorithm_all_gather_direct,
    &comm_algorithm_broadcast_direct,
    &comm_algorithm_gather_direct,
    &comm_algorithm_scatter_direct,
    &comm_algorithm_all_to_all_direct,
    &comm_algorithm_all_to_allv_direct,
    &comm_algorithm_barrier_direct,
    &comm_algorithm_send_message,
    &comm_algorithm_receive_message,
    // Over both, where a group is made so.
    &comm_algorithm_all_reduce_two_level,
    &comm_algorithm_reduce_scatter_two_level,
    &comm_algorithm_all_gather_two_level,
    &comm_algorithm_broadcast_two_level,
    &comm_algorithm_all_to_all_two_level,
    &comm_algorithm_all_to_allv_two_level,
    &comm_algorithm_barrier_two_level,
    // Over messages: rows for small buffers come first, strict ones after those of order `any`.
    &comm_algorithm_all_reduce_doubling,
    &comm_algorithm_all_reduce_halving,
    &comm_algorithm_all_reduce_ring,
    &comm_algorithm_all_reduce_gather,
    &comm_algorithm_all_reduce_pieces,
    &comm_algorithm_reduce_scatter_halving,
    &comm_algorithm_reduce_scatter_ring,
    &comm_algorithm_reduce_scatter_pieces,
    &comm_algorithm_reduce_tree,
    &comm_algorithm_reduce_gather,
    &comm_algorithm_reduce_pieces,
    &comm_algorithm_all_gather_bruck,
    &comm_algorithm_all_gather_doubling,
    &comm_algorithm_all_gather_ring,
    &comm_algorithm_broadcast_tree,
    &comm_algorithm_gather_tree,
    &comm_algorithm_scatter_tree,
    &comm_algorithm_all_to_all_bruck,
    &comm_algorithm_all_to_all_pairwise,
    &comm_algorithm_all_to_allv_pairwise,
    &comm_algorithm_barrier_dissemination,
};

int comm_algorithm_count(void)
{
    return (int)COUNT_OF(comm_algorithm_table);
}

const comm_algorithm *comm_algorithm_find(op_collective op, const char *name)
{
    for (int i = 0; i < comm_algorithm_count(); i++) {
        const comm_algorithm *a = comm_algorithm_table[i];
        if (a->op == op && strcmp(a->name, name) == 0) return a;
    }
    return NULL;
}
