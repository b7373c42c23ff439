import unittest

import stats


class Mean(unittest.TestCase):
    def test_of_several(self):
        self.assertEqual(stats.mean([1, 2, 3]), 2)

    def test_of_one(self):
        self.assertEqual(stats.mean([4, 4]), 4)
