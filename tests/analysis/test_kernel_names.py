"""Names of kernels as tables show them; what the full name would be stands in comments where it helps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel_names import LONGEST, kernel_title


@pytest.mark.parametrize(
    ("mangled", "title"),
    [
        ("_Z6kernelPf", "kernel"),
        ("_ZN2at6native18elementwise_kernelEv", "at::native::elementwise_kernel"),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_",
            "at::native::vectorized_elementwise_kernel<4, FillFunctor<float>, Array<…>>",
        ),
        (
            "_ZN7cutlass6KernelI50cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4EEvNT_6ParamsE",
            "cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>",
        ),
        (
            "_ZN8internal5gemvx6kernelIiiffLb0ELb1ELin7EEEvT_",
            "internal::gemvx::kernel<int, int, float, float, false, true, -7>",
        ),
        ("_ZN12_GLOBAL__N_13addEv", "(anonymous namespace)::add"),
        ("_ZNSt3pmr3runEv", "std::pmr::run"),
        ("_Z3addIfEvT_", "add<float>"),
        ("_ZN3cub6KernelINS_6PolicyEE3runEv", "cub::Kernel<Policy>::run"),
        ("_ZN3cub6KernelIPfE3runEv", "cub::Kernel<…>"),  # what follows an ellipsis is not read
        ("_Z3addI1aI1bI1cI1dI1eEEEEEvv", "add<a<b<c<d<…>>>>>"),
    ],
)
def test_a_mangled_name_becomes_a_title(mangled: str, title: str) -> None:
    assert kernel_title(mangled) == title


@pytest.mark.parametrize("name", ["ampere_sgemm_128x64_nn", "void at::native::copy<float>(float*)", "(no name)", ""])
def test_a_name_that_is_not_mangled_is_itself(name: str) -> None:
    assert kernel_title(name) == name


@pytest.mark.parametrize(
    "name", ["_Z", "_Z9", "_Z99short", "_ZN", "_ZNK", "_ZT", "_Z²x", "_Z3addI", "_Z3addILi", "_Z3addILiE"]
)
def test_a_name_that_is_cut_or_nonsense_is_shown_all_the_same(name: str) -> None:
    assert kernel_title(name)


def test_a_name_that_doubles_with_each_letter_is_read_in_a_straight_line() -> None:
    numbers = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    doubled = "".join(f"S_IS{number}_S{number}_E" for number in numbers)  # the last alone: 2^36 letters, written out
    assert kernel_title(f"_Z1fI1aIiiE{doubled}EvT_") == "f<a<int, int>, …>"


@given(st.one_of(st.text(max_size=1100), st.text("_ZNISt0123456789ELRKibjf", max_size=1100).map("_Z".__add__)))
def test_whatever_stands_there_costs_little_and_stays_short(name: str) -> None:
    assert len(kernel_title(name)) <= LONGEST
