"""
A tree of maps: oil flow
========================

Oil, water and gas flow through a pipe in one of three ways: homogeneous, annular or laminar. Of
1,000 such flows twelve sensors are known, and not the way. One map of all rows shows a few islands,
and two of the ways on top of each other. :class:`~dualpca.HierarchicalPPCA` looks into every
cluster: below the large one they part (Bishop & Tipping 1998). Only the colours know the ways.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import HierarchicalPPCA, datasets, plots

flows = datasets.oil_flow()
model = HierarchicalPPCA(max_depth=2).fit(flows.X)  # depth and numbers of children by BIC
names = np.array(flows.classes)[flows.y]

plots.tree(model, flows.X, names, max_depth=1)

# The large cluster and what is in it.
largest = max(model.nodes_[1:], key=lambda node: node.n_rows)
figure = plots.tree(model, flows.X, names, node=largest.index)
plt.show()

leaves = model.predict(flows.X)
share = sum(np.bincount(flows.y[leaves == leaf]).max() for leaf in model.leaves_) / len(leaves)
print(f"{share:.1%} of the rows are in a leaf where most flow the same way")
