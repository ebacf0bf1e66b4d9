"""Rows in the subspace of a spectrum and back, for the primal and for the dual."""

from dualpca.operators.primal import Primal


def projected(rep, spectrum, X):
    """Return coordinates on the eigenvectors and the squared distance off their span."""
    if isinstance(rep, Primal):
        return rep.frame.project(spectrum.vectors, X)
    return rep.subspace(spectrum).project(X)


def lifted(rep, spectrum, Y):
    """Return the rows of coordinates Y, in the units of X."""
    if isinstance(rep, Primal):
        return rep.frame.lift(spectrum.vectors, Y)
    span, X = rep.subspace(spectrum), rep.gram.points
    return Y @ (span.coefficients.T @ X) + span.base @ X
