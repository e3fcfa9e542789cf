package server

import (
	"encoding/base64"
	"iter"
	"strings"

	"google.golang.org/protobuf/proto"
)

// A token names the last key of a page and the list it belongs to, so that pages stay right while rows change, and a
// token of one list is refused by another (COORD-16.3).
func tokenOf(list string, key ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\x00" + strings.Join(key, "\x00")))
}

// keyOf reads a token of a list whose keys have so many parts.
func keyOf(list, token string, parts int) ([]string, error) {
	if token == "" {
		return make([]string, parts), nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	got := strings.Split(string(raw), "\x00")
	if err != nil || len(got) != parts+1 || got[0] != list {
		return nil, invalidArgument("page-token", "page_token was not issued by this list: start again without it")
	}
	return got[1:], nil
}

// page gathers up to size rows, or all with 0, and at most pageBytesMax of them. It returns the token of the next page.
func page[T proto.Message](size int32, rows iter.Seq[T], token func(T) string) (out []T, next string) {
	bytes := 0
	for row := range rows {
		if size > 0 && len(out) >= int(size) || bytes > pageBytesMax {
			return out, token(out[len(out)-1])
		}
		out = append(out, row)
		bytes += proto.Size(row)
	}
	return out, ""
}
