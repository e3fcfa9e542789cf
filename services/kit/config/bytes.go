package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Bytes is a flag that holds a size, written as 16MiB, 4GiB or a plain number.
type Bytes int64

// BytesVar adds a size flag.
func BytesVar(fs *pflag.FlagSet, p *int64, name string, value int64, usage string) {
	*p = value
	fs.Var((*Bytes)(p), name, usage)
}

var units = []struct {
	suffix string
	bytes  int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// Set implements pflag.Value.
func (b *Bytes) Set(text string) error {
	factor := int64(1)
	number := text
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			number, factor = n, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > (1<<63-1)/factor {
		return fmt.Errorf("want a size such as 16MiB, 4GiB or 1048576")
	}
	*b = Bytes(n * factor)
	return nil
}

// String implements pflag.Value: the largest unit that is exact.
func (b *Bytes) String() string {
	for _, u := range units {
		if *b != 0 && int64(*b)%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(int64(*b)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type implements pflag.Value.
func (b *Bytes) Type() string { return "size" }
