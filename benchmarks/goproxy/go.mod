module podgate.dev/benchmarks/goproxy

go 1.21
