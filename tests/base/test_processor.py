import platform

from dpatlas.base.processor import processor

X86 = """\
processor\t: 0
model name\t: Some CPU @ 3 GHz
flags\t\t: fpu sse2 avx avx2 avx512f

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


def test_the_name_and_the_widest_vectors_of_the_first_core(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(X86)
    assert processor(path) == "Some CPU @ 3 GHz, avx512f"
    path.write_text(X86.replace(" avx512f", ""))
    assert processor(path) == "Some CPU @ 3 GHz, avx2"
    assert processor(tmp_path / "nowhere") == (platform.processor() or platform.machine())
