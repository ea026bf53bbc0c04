#!/usr/bin/env python3
"""What sparse_tables.py makes of rows."""
import unittest

import sparse_tables


def row(case, value, metric="rate", bench="sparse"):
    return {"bench": bench, "case": case, "metric": metric, "value": value}


class SparseTables(unittest.TestCase):
    def test_speeds_are_geometric_means_over_widths_by_the_first(self):
        rows = [row("ablation formats of spmm g F32: csr", 10), row("ablation formats of spmm g F32: hyb(1, 4)", 20),
                row("ablation formats of spmm g F64: csr", 10), row("ablation formats of spmm g F64: hyb(1, 4)", 80),
                row("ablation formats of spmm g F64: hyb(2, 4)", 5)]
        table = sparse_tables.formats_table(sparse_tables.ablations(rows)["formats of spmm"])
        self.assertIn("| g | 4 | 4.00 | 0.50 |  |  |  |", table)

    def test_padding_stands_beside_the_papers_where_k_is_its(self):
        rows = [row(f"hyb(1, {k}) of cora", 15.84, "padding of its places", "sparse-tune") for k in (2, 5)]
        self.assertEqual(sparse_tables.padding_table(rows).splitlines()[2:],
                         ["| cora | 2 | 15.8 | 15.9 |", "| cora | 5 | 15.8 |  |"])

    def test_memory_stands_beside_rates(self):
        case = "ablation rgcn aifb 32 -> 32: tiles of rows"
        rows = [row(case, 100.), row(case, 1.5, "peak memory beside its tensors")]
        table = sparse_tables.widths_table(sparse_tables.ablations(rows)["rgcn"], "Work")
        self.assertIn("| aifb, 32 | 100 (1.5) |", table)


if __name__ == "__main__":
    unittest.main()
