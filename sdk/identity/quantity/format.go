package quantity

import (
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

const binarySuffixes = "KMGTPE"

// Bytes reports whether a resource counts bytes, so that people write its amounts with binary suffixes.
func Bytes(resource string) bool {
	return resource == "memory" || resource == "storage" || resource == "ephemeral-storage" || strings.HasPrefix(resource, "hugepages-")
}

// Format writes milli-units of a resource as a quantity: "1500m", "4", "16Gi".
func Format(resource string, milli int64) string {
	if milli%1000 != 0 {
		return strconv.FormatInt(milli, 10) + "m"
	}
	return whole(resource, milli/1000)
}

// Human writes milli-units of a resource for readers: as Format, but with decimals instead of milli-units: "1.5".
func Human(resource string, milli int64) string {
	if milli%1000 != 0 {
		return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
	}
	return whole(resource, milli/1000)
}

func whole(resource string, units int64) string {
	if units != 0 && Bytes(resource) {
		if n := min(bits.TrailingZeros64(uint64(units))/10, len(binarySuffixes)); n > 0 {
			return strconv.FormatInt(units>>(10*n), 10) + binarySuffixes[n-1:n] + "i"
		}
	}
	return strconv.FormatInt(units, 10)
}

// FormatBig is Format for sums that may not fit an int64.
func FormatBig(resource string, milli *big.Int) string {
	if milli.IsInt64() {
		return Format(resource, milli.Int64())
	}
	units, rest := new(big.Int).QuoRem(milli, big.NewInt(1000), new(big.Int))
	if rest.Sign() != 0 {
		return milli.String() + "m"
	}
	if n := min(int(units.TrailingZeroBits())/10, len(binarySuffixes)); n > 0 && Bytes(resource) {
		return units.Rsh(units, uint(10*n)).String() + binarySuffixes[n-1:n] + "i"
	}
	return units.String()
}
