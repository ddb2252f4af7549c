from xcompress.bench.devices.local import LocalDevice


def test_the_memory_of_a_cuda_device_is_left_out_and_the_report_says_so() -> None:
    assert LocalDevice("cpu").info.emulated == ()
    assert LocalDevice("cuda").info.emulated == (
        "memory: that of the process; the memory of the CUDA device is not counted",
    )
