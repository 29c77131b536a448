import platform

from dpatlas.core.processor import processor

X86 = """\
processor\t: 0
model name\t: Some CPU @ 3 GHz
flags\t\t: fpu sse2 avx avx2 avx512f

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n"


def test_the_name_and_the_widest_vectors_of_the_first_core(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(X86)
    assert processor(path) == "Some CPU @ 3 GHz, avx512f"
    path.write_text(X86.replace(" avx512f", ""))
    assert processor(path) == "Some CPU @ 3 GHz, avx2"


def test_a_core_without_a_name_has_the_platforms(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(ARM)
    named = platform.processor() or platform.machine()
    assert processor(path) == f"{named}, sve"
    assert processor(tmp_path / "nowhere") == named
